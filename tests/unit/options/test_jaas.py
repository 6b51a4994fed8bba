"""JAAS entries as Java's users write them, and refusals that repeat nothing of theirs."""

from __future__ import annotations

import pytest

from keyrange.options.jaas import parse_jaas

KAFKA = "org.apache.kafka.common.security."
PLAIN = f"{KAFKA}plain.PlainLoginModule"
SCRAM = f"{KAFKA}scram.ScramLoginModule"
OAUTH = f"{KAFKA}oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
PASSWORD = "hunter2-\\\"';=,é"


def options(text: str) -> dict[str, str]:
    return {name: value.reveal() for name, value in parse_jaas(text)[1].items()}


def refusal(text: str) -> str:
    with pytest.raises(ValueError) as caught:
        parse_jaas(text)
    assert str(caught.value).startswith("must ")
    return str(caught.value)


@pytest.mark.parametrize("module", [PLAIN, SCRAM])
@pytest.mark.parametrize(
    ("entries", "user", "password"),
    [
        ('username="u" password="p";', "u", "p"),
        ("username='u' password='p';", "u", "p"),
        ("username=u password=p;", "u", "p"),
        ('username="u" password="p"', "u", "p"),
        ('password="p" username="u" ;', "u", "p"),
        ('\n  username = "u"\n  password = "p";\n', "u", "p"),
        (r'username="u" password="a\"b\\c";', "u", 'a"b\\c'),
        ('username="u" password="a;b=c d\'e";', "u", "a;b=c d'e"),
        ('username="a b" password="é€";', "a b", "é€"),
        ('username="$ConnectionString" password="Endpoint=sb://h/;SharedAccessKey=a+/=";',
         "$ConnectionString", "Endpoint=sb://h/;SharedAccessKey=a+/="),
        ('username="u" password="p" tokenauth="false";', "u", "p"),
        ('username="u" password="";', "u", ""),
    ],
)  # fmt: skip
def test_user_and_password(module: str, entries: str, user: str, password: str) -> None:
    assert options(f"{module} required {entries}") == {"username": user, "password": password}


@pytest.mark.parametrize("flag", ["required", "requisite", "sufficient", "OPTIONAL"])
@pytest.mark.parametrize("shade", ["", "kafkashaded.", "shadedmskiam.", "my_own.x1."])
@pytest.mark.parametrize("module", [PLAIN, SCRAM, OAUTH, KERBEROS, IAM])
def test_modules_by_their_full_name_also_shaded(module: str, shade: str, flag: str) -> None:
    assert parse_jaas(f"{shade}{module} {flag};")[0].class_name == module


@pytest.mark.parametrize(
    "name", ["PlainLoginModule", "x.PlainLoginModule", f"{PLAIN}2", f"evil{PLAIN}", "com.x.Y"]
)
def test_other_modules_are_refused(name: str) -> None:
    assert "PlainLoginModule" in refusal(f'{name} required username="u" password="p";')


def test_oauth() -> None:
    text = (
        f'{OAUTH} required clientId="c" clientSecret="s" scope="a b" '
        'extension_logicalCluster="lkc-1" ssl.truststore.location="/t.jks" ;'
    )
    assert options(text) == {
        "clientId": "c",
        "clientSecret": "s",
        "scope": "a b",
        "extension_logicalCluster": "lkc-1",
        "ssl.truststore.location": "/t.jks",
    }
    assert options(f'{OAUTH} required unsecuredLoginStringClaim_sub="u";') == {
        "unsecuredLoginStringClaim_sub": "u"
    }


def test_kerberos() -> None:
    text = (
        f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/k" principal="p@R" '
        'serviceName="kafka" useTicketCache=false renewTGT=true doNotPrompt=true debug=false;'
    )
    assert options(text) == {
        "useKeyTab": "true",
        "keyTab": "/k",
        "principal": "p@R",
        "serviceName": "kafka",
        "useTicketCache": "false",
    }


def test_amazon() -> None:
    assert options(f"{IAM} required;") == {}
    assert options(f'{IAM} required awsProfileName="p" awsDebugCreds=true;') == {
        "awsProfileName": "p"
    }


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (SCRAM, "tokenauth"),
        (OAUTH, "oauth.client.id"),
        (OAUTH, "ssl.keystore.location"),
        (IAM, "awsRoleArn"),
        (IAM, "awsRoleSessionName"),
        (IAM, "awsRoleExternalId"),
        (IAM, "awsStsRegion"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(module: str, name: str) -> None:
    message = refusal(f'{module} required {name}="{PASSWORD[:7]}";')
    assert f"option {name}: " in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "text",
    [
        f'PlainLoginModule required username="u" password="{PASSWORD}";',
        f"x {PASSWORD}",
        PASSWORD,
        "",
        f'{PLAIN} required username="u" password="hunter2;',
        f'{PLAIN} required username="u" password="a" hunter2="b";',
        f'{PLAIN} required username="u" password=hunter2=x;',
        f'{PLAIN} required username="u" password=a hunter2;',
        f'{PLAIN} required username="u" password="hunter2"; {PLAIN} required;',
        f'{PLAIN} required username="u" password="env:hunter2 x";',
        f'{PLAIN} username="u" password="hunter2";',
    ],
)
def test_what_cannot_be_read_is_not_repeated(text: str) -> None:
    assert "hunter2" not in refusal(text)


def test_values_may_be_references(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = parse_jaas(f'{PLAIN} required username="literal:env:U" password="env:SECRET_OF_U";')
    assert "SECRET" not in repr(found)
    monkeypatch.setenv("SECRET_OF_U", "s")
    assert found["password"].reveal() == "s"
    assert found["username"].reveal() == "env:U"
