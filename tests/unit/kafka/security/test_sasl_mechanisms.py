"""What each mechanism is given, as far as it goes without a server of its kind.

gssapi and botocore are packages of users who need them: stand-ins note how they are called.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import InvalidError, KeyrangeError
from keyrange.kafka.security import sasl_handshake as sasl
from keyrange.options.kafka_properties import ClientSettings, parse_client_options
from keyrange.options.value_parsers import Violations

KAFKA = "org.apache.kafka.common.security."
PLAIN = f"{KAFKA}plain.PlainLoginModule required "
SCRAM = f"{KAFKA}scram.ScramLoginModule required "
OAUTH = f"{KAFKA}oauthbearer.OAuthBearerLoginModule required "
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required "
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required "


def settings(mechanism: str, jaas: str, **given: str) -> ClientSettings:
    violations = Violations()
    options = {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    } | {name.replace("_", "."): value for name, value in given.items()}
    parsed = parse_client_options(options, violations)
    assert violations.messages == []
    return parsed


def test_plain() -> None:
    client, user = sasl.new_client(settings("PLAIN", PLAIN + 'username="u" password="p";'), "h")
    assert user == "u"
    assert client.auth_bytes() == b"u\0u\0p"


def test_scram_escapes_what_parts_the_message() -> None:
    jaas = SCRAM + 'username="a=b,c" password="p";'
    client, user = sasl.new_client(settings("SCRAM-SHA-256", jaas), "h")
    assert user == "a=b,c"
    assert client.auth_bytes().startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_proof_of_few_iterations_is_not_made(mechanism: str) -> None:
    jaas = settings(mechanism, SCRAM + 'username="u" password="p";')

    def asked(told: str) -> Any:
        client, _ = sasl.new_client(jaas, "h")
        nonce = client.auth_bytes().rpartition(b"r=")[2].decode()
        client.receive(f"r={nonce}x,s=c2FsdA==,{told}".encode())
        return client.auth_bytes()

    for told in ("i=1", "i=4095", "i=4096,i=1"):
        with pytest.raises(ValueError, match=r"the broker asks for .* and 4096 are the fewest"):
            asked(told)
    assert b",p=" in asked("i=4096")


def test_oauth() -> None:
    jaas = OAUTH + 'unsecuredLoginStringClaim_sub="u" extension_cluster="one";'
    client, _ = sasl.new_client(settings("OAUTHBEARER", jaas), "h")
    message = client.auth_bytes()
    assert message.startswith(b"n,,\x01auth=Bearer ey")
    assert message.endswith(b".\x01cluster=one\x01\x01")


def test_references_are_looked_up_at_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    client_settings = settings("PLAIN", "env:KEYRANGE_JAAS")
    inner = settings("PLAIN", PLAIN + 'username="env:KEYRANGE_USER" password="env:KEYRANGE_PW";')
    monkeypatch.setenv("KEYRANGE_JAAS", PLAIN + 'username="u" password="env:KEYRANGE_PW";')
    monkeypatch.setenv("KEYRANGE_USER", "u")
    for password in ("one", "two"):
        monkeypatch.setenv("KEYRANGE_PW", password)
        for each in (client_settings, inner):
            message = sasl.new_client(each, "h")[0].auth_bytes()
            assert message == b"u\0u\0" + password.encode()
    monkeypatch.delenv("KEYRANGE_PW")
    for each in (client_settings, inner):
        with pytest.raises(InvalidError, match=r"\[SECRET_NOT_FOUND\] env:KEYRANGE_PW is not set"):
            sasl.new_client(each, "h")


@pytest.mark.parametrize(
    "jaas", ["hunter2", PLAIN + 'username="hunter2";', SCRAM + 'username="u" password="hunter2";']
)
def test_a_referred_jaas_configuration_that_does_not_fit(
    jaas: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYRANGE_JAAS", jaas)
    with pytest.raises(InvalidError, match=r"option 'kafka.sasl.jaas.config' must ") as caught:
        sasl.new_client(settings("PLAIN", "env:KEYRANGE_JAAS"), "h")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "package", "extra"),
    [
        ("GSSAPI", KERBEROS + 'serviceName="kafka";', "gssapi", "pip install '.[kerberos]'"),
        ("AWS_MSK_IAM", IAM + ";", "botocore", "pip install '.[msk]'"),
    ],
)
def test_a_package_that_is_not_there_is_named(
    mechanism: str, jaas: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidError, match=r"\[PACKAGE_NOT_FOUND\]") as caught:
        sasl.new_client(settings(mechanism, jaas), "h")
    assert f"Python package {package}" in str(caught.value)
    assert extra in str(caught.value)


class KerberosStandIn(ModuleType):
    """As much of gssapi as a first token takes."""

    NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
    MechType = SimpleNamespace(kerberos="kerberos")

    def __init__(self) -> None:
        super().__init__("gssapi")
        self.asked: dict[str, Any] = {}

    def Name(self, text: str, kind: str) -> Any:
        name = SimpleNamespace(text=(text, kind))
        name.canonicalize = lambda mechanism: name
        return name

    def Credentials(self, **given: Any) -> Any:
        self.asked = given
        return "credentials"

    def SecurityContext(self, **given: Any) -> Any:
        assert given["creds"] == "credentials"
        assert given["usage"] == "initiate"
        token = str(given["name"].text).encode()
        return SimpleNamespace(step=lambda _: token)


@pytest.fixture
def kerberos(monkeypatch: pytest.MonkeyPatch) -> KerberosStandIn:
    stand_in = KerberosStandIn()
    monkeypatch.setitem(sys.modules, "gssapi", stand_in)
    return stand_in


@pytest.mark.parametrize(
    ("options", "principal", "store"),
    [
        ('useTicketCache=true serviceName="kafka";', None, None),
        ('useTicketCache=true ticketCache="/c" serviceName="kafka";', None, {"ccache": "/c"}),
        ('keyTab="/k" principal="p@R" serviceName="kafka";', "p@R", None),
        (
            'useKeyTab=true keyTab="/k" useTicketCache=true principal="p@R" serviceName="kafka";',
            "p@R",
            {"client_keytab": "/k"},
        ),
        (
            'useKeyTab=true keyTab="/k" principal="p@R" serviceName="kafka";',
            "p@R",
            {"client_keytab": "/k", "ccache": "MEMORY:..."},
        ),
    ],
)
def test_kerberos(
    kerberos: KerberosStandIn,
    tmp_path: Path,
    options: str,
    principal: str | None,
    store: dict[str, str] | None,
) -> None:
    (tmp_path / "k").touch()
    options = options.replace('"/k"', f'"{tmp_path}/k"')
    client, user = sasl.new_client(settings("GSSAPI", KERBEROS + options), "broker-1.x")
    assert client.auth_bytes() == b"('kafka@broker-1.x', 'service')"
    assert user == (principal or "")
    name, asked = kerberos.asked["name"], kerberos.asked["store"]
    assert (name and name.text) == (principal and (principal, "principal"))
    if asked and asked.get("ccache", "").startswith("MEMORY:keyrange-"):
        asked = asked | {"ccache": "MEMORY:..."}
    if asked and "client_keytab" in asked:
        asked = asked | {"client_keytab": asked["client_keytab"].removeprefix(str(tmp_path))}
    assert asked == store
    assert kerberos.asked["usage"] == "initiate"


def test_a_key_tab_that_is_not_there_is_named(kerberos: KerberosStandIn) -> None:
    jaas = KERBEROS + 'useKeyTab=true keyTab="/not/there" principal="p@R" serviceName="kafka";'
    with pytest.raises(InvalidError, match=r"\[SECRET_NOT_FOUND\] keyTab /not/there"):
        sasl.new_client(settings("GSSAPI", jaas), "h")


@pytest.mark.parametrize(
    ("mechanism", "user", "said"),
    [
        ("SCRAM-SHA-512", "Jürgen", "user names of SCRAM in ASCII only"),
        ("SCRAM-SHA-512", "a,b=c", ""),
        ("PLAIN", "Jürgen", ""),
        ("GSSAPI", "p@R", "clocks that agree within minutes, and this machine's says 20"),
    ],
)
def test_what_a_broker_does_not_say(mechanism: str, user: str, said: str) -> None:
    text = sasl.why_refused(mechanism, user)
    assert said in text
    assert bool(said) == bool(text)


KRB5 = -1765328384 + 2**32
KEY_TAB = 'useKeyTab=true keyTab="/dev/null" principal="p@R" serviceName="kafka";'
CACHE = 'useTicketCache=true ticketCache="/c" serviceName="kafka";'


@pytest.mark.parametrize(
    ("options", "code", "condition", "hint"),
    [
        (KEY_TAB, KRB5 + 195, "NO_KERBEROS_TICKET", "/dev/null holds no key of p@R; klist -k"),
        (KEY_TAB, KRB5 + 31, "NO_KERBEROS_TICKET", "the keys in /dev/null are not the principal's"),
        (
            KEY_TAB,
            KRB5 + 7,
            "NO_KERBEROS_TICKET",
            "the host that the broker advertises, broker-1.x",
        ),
        (KEY_TAB, KRB5 + 37, "NO_KERBEROS_TICKET", "clocks that agree within minutes"),
        (KEY_TAB, KRB5 + 156, "KDC_UNREACHABLE", "krb5.conf of the process that connects"),
        (CACHE, KRB5 + 32, "NO_KERBEROS_TICKET", "renew the ticket in /c where this process runs"),
        (CACHE, KRB5 + 195, "NO_KERBEROS_TICKET", "/c holds no ticket where this process runs"),
        (
            'serviceName="kafka";',
            KRB5 + 141,
            "NO_KERBEROS_TICKET",
            "the default ticket cache holds",
        ),
        (CACHE, None, "NO_KERBEROS_TICKET", "was had: It said so. To mend it"),
    ],
)
def test_what_kerberos_says_is_explained(
    kerberos: KerberosStandIn,
    options: str,
    code: int | None,
    condition: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class GSSError(Exception):
        min_code = code

    def fail(**given: Any) -> Any:
        raise GSSError(f"Major (458752): No credentials, Minor ({code or 0}): It said so")

    monkeypatch.setattr(kerberos, "Credentials", fail)
    with pytest.raises(KeyrangeError) as caught:
        sasl.new_client(settings("GSSAPI", KERBEROS + options), "broker-1.x")
    assert caught.value.condition.name == condition
    assert "no ticket for kafka/broker-1.x was had: It said so" in str(caught.value)
    assert hint in str(caught.value)
    assert "Major" not in str(caught.value)


def test_a_key_tab_whose_ticket_has_expired(
    kerberos: KerberosStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library keeps that ticket where it could get no other; a cache without one says why, and
    is the one that is used from then on."""

    class GSSError(Exception):
        min_code = KRB5 + 32

    made, gone = KerberosStandIn.Credentials, list[str]()

    def credentials(**given: Any) -> Any:
        cache = given["store"]["ccache"]
        if not gone or cache == gone[0]:
            gone.append(cache)
            raise GSSError("Ticket expired")
        return made(kerberos, **given)

    monkeypatch.setattr(kerberos, "Credentials", credentials)
    for _ in range(2):
        client, _ = sasl.new_client(settings("GSSAPI", KERBEROS + KEY_TAB), "broker-1.x")
        assert client.auth_bytes() == b"('kafka@broker-1.x', 'service')"
    assert len(gone) == 1


class AmazonStandIn:
    """As much of botocore's session as kafka-python takes."""

    def __init__(self, profile: str | None = None) -> None:
        self.profile = profile

    def get_credentials(self) -> Any:
        if self.profile == "empty":
            return None
        key = f"AKID-{self.profile}"
        frozen = SimpleNamespace(access_key=key, secret_key="wJalr/hunter2", token="session")
        return SimpleNamespace(get_frozen_credentials=lambda: frozen)

    def get_config_variable(self, name: str) -> str:
        assert name == "region"
        return "eu-west-1"


def derived(secret: str, *parts: str) -> bytes:
    key = ("AWS4" + secret).encode()
    for part in parts:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("botocore"), ModuleType("botocore.session")
    module.Session = AmazonStandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "botocore", package)
    monkeypatch.setitem(sys.modules, "botocore.session", module)


def test_amazon_without_credentials_says_so(amazon: None) -> None:
    client, _ = sasl.new_client(settings("AWS_MSK_IAM", IAM + 'awsProfileName="empty";'), "h")
    with pytest.raises(LookupError, match="no AWS credentials"):
        client.auth_bytes()


@pytest.mark.parametrize(
    ("options", "profile"), [(";", None), ('awsProfileName="reader";', "reader")]
)
def test_amazon_signs_as_its_documents_say(amazon: None, options: str, profile: str | None) -> None:
    """Signature version 4 over a GET of /, computed here from the published steps."""
    client, _ = sasl.new_client(settings("AWS_MSK_IAM", IAM + options), "b-1.kafka.aws")
    message = client.auth_bytes()
    said = json.loads(message)

    date = said["x-amz-date"]
    scope = f"{date[:8]}/eu-west-1/kafka-cluster/aws4_request"
    assert said["x-amz-credential"] == f"AKID-{profile}/{scope}"
    query = (
        "Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
        f"AKID-{profile}%2F{scope.replace('/', '%2F')}&X-Amz-Date={date}&X-Amz-Expires=900&"
        "X-Amz-Security-Token=session&X-Amz-SignedHeaders=host"
    )
    empty = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{query}\nhost:b-1.kafka.aws\n\nhost\n{empty}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    signed = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}"
    key = derived("wJalr/hunter2", date[:8], "eu-west-1", "kafka-cluster", "aws4_request")
    assert said["x-amz-signature"] == hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()
    assert said["host"] == "b-1.kafka.aws"
    assert said["action"] == "kafka-cluster:Connect"
    assert b"hunter2" not in message


def test_nothing_of_it_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="kafka")
    jaas = SCRAM + 'username="u" password="hunter2";'
    client, _ = sasl.new_client(settings("SCRAM-SHA-512", jaas), "h")
    client.auth_bytes()
    oauth = settings("OAUTHBEARER", OAUTH + 'unsecuredLoginStringClaim_sub="hunter2";')
    sasl.new_client(oauth, "h")[0].receive(base64.b64encode(b"hunter2"))
    assert "hunter2" not in caplog.text
    assert base64.b64encode(b"hunter2").decode() not in caplog.text
