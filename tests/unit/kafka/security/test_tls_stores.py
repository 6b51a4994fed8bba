"""Trust stores and key stores in all forms, proven by a TLS handshake that needs both sides."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest

from brokers.certificates import KEY_PASSWORD, STORE_PASSWORD, Stores, issue, make_stores
from keyrange.errors import InvalidError
from keyrange.kafka.security import tls_stores
from keyrange.options.kafka_properties import ClientSettings, parse_client_options
from keyrange.options.value_parsers import Violations
from project.forms import everyday


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return make_stores(tmp_path_factory.mktemp("stores"))


def settings(**options: str) -> ClientSettings:
    violations = Violations()
    given = {"bootstrap.servers": "h:1", "security.protocol": "SSL"}
    given |= {"ssl." + name.replace("_", "."): value for name, value in options.items()}
    parsed = parse_client_options(given, violations)
    assert violations.messages == []
    return parsed


def refusal(**options: str) -> str:
    with pytest.raises(InvalidError) as caught:
        tls_stores.tls_context(settings(**options))
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


def trust(made: Stores) -> dict[str, str]:
    return {"truststore_location": made.path("root.pem")}


def handshake(made: Stores, directory: Path, client: ssl.SSLContext) -> str:
    """The common name of the client's certificate, as a server sees it that demands one."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=made.root.pem)
    pem = directory / "server.pem"
    pem.write_text(made.server.pem + made.middle.pem + made.server.key_pem())
    server.load_cert_chain(pem)
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(one, other, server_hostname="localhost"),
        server.wrap_bio(other, one, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    certificate = sides[1].getpeercert()
    assert certificate is not None
    return str(dict(each[0] for each in certificate["subject"])["commonName"])


TRUST = {
    "pem file": {"truststore_location": "root.pem"},
    "pem file, librdkafka's name": {"ca_location": "root.pem"},
    "pem file with its type": {"truststore_location": "root.pem", "truststore_type": "PEM"},
    "jks": {"truststore_location": "trust.jks", "truststore_password": STORE_PASSWORD},
    "jks without password, as in Java": {"truststore_location": "trust.jks"},
    "pkcs12": {"truststore_location": "trust.p12", "truststore_password": STORE_PASSWORD},
    "pkcs12 called jks, as in Java": {
        "truststore_location": "trust.p12",
        "truststore_password": STORE_PASSWORD,
        "truststore_type": "JKS",
    },
}
KEY = {
    "jks": {
        "keystore_location": "key.jks",
        "keystore_password": STORE_PASSWORD,
        "key_password": KEY_PASSWORD,
    },
    "pkcs12": {"keystore_location": "key.p12", "keystore_password": STORE_PASSWORD},
    "pkcs12 of keytool": {"keystore_location": "key.java.p12", "keystore_password": STORE_PASSWORD},
}


def placed(made: Stores, options: dict[str, str]) -> dict[str, str]:
    return {
        name: made.path(value) if name.endswith("location") else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("key", KEY)
@pytest.mark.parametrize("form", TRUST)
@pytest.mark.ordinary
def test_files(made: Stores, tmp_path: Path, form: str, key: str) -> None:
    context = tls_stores.tls_context(settings(**placed(made, TRUST[form] | KEY[key])))
    assert handshake(made, tmp_path, context) == "client"


@pytest.mark.parametrize("password", everyday(KEY_PASSWORD, ""))
@pytest.mark.parametrize("one_line", everyday(True, False))
def test_texts(made: Stores, tmp_path: Path, password: str, one_line: bool) -> None:
    """In properties a PEM is often written without its line breaks; Java takes it so."""
    texts = {
        "truststore_certificates": "# é\n" + made.root.pem,
        "keystore_certificate_chain": made.client.pem + made.middle.pem,
        "keystore_key": made.client.key_pem(password),
    }
    if one_line:
        texts = {name: text.replace("\n", " ") for name, text in texts.items()}
    context = tls_stores.tls_context(settings(**texts, key_password=password))
    assert handshake(made, tmp_path, context) == "client"


@pytest.mark.parametrize("password", ["", KEY_PASSWORD])
@pytest.mark.parametrize("apart", [False, True])
def test_a_pem_key_store(made: Stores, tmp_path: Path, password: str, apart: bool) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    text = made.client.pem + made.middle.pem
    chain.write_text(text if apart else text + made.client.key_pem(password))
    key.write_text(made.client.key_pem(password))
    given = {"keystore_location": str(chain), "key_password": password}
    if apart:
        given["key_location"] = str(key)
    context = tls_stores.tls_context(settings(**trust(made), **given))
    assert handshake(made, tmp_path, context) == "client"


def test_secrets_by_reference(
    made: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts them so; what was rotated is taken from the next connection on."""
    password = tmp_path / "password"
    monkeypatch.setenv("STORE_KEY", KEY_PASSWORD)
    options = placed(made, KEY["jks"]) | {
        "keystore_password": f"file:{password}",
        "key_password": "env:STORE_KEY",
    }
    client = settings(**trust(made), **options)
    password.write_text("not-it")
    with pytest.raises(InvalidError, match="password is wrong"):
        tls_stores.tls_context(client)
    password.write_text(STORE_PASSWORD + "\n")
    assert handshake(made, tmp_path, tls_stores.tls_context(client)) == "client"
    monkeypatch.delenv("STORE_KEY")
    with pytest.raises(InvalidError, match=r"\[SECRET_NOT_FOUND\] env:STORE_KEY"):
        tls_stores.tls_context(client)


def test_another_authority_is_not_trusted(made: Stores, tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_text(issue("root", authority=True).pem)
    context = tls_stores.tls_context(settings(truststore_location=str(tmp_path / "other.pem")))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, tmp_path, context)


@pytest.mark.parametrize("name", ["middle", "server"])
def test_what_is_trusted_need_not_be_a_root(made: Stores, tmp_path: Path, name: str) -> None:
    """Java takes any certificate of a trust store as an anchor."""
    pem = {"middle": made.middle.pem, "server": made.server.pem}[name]
    context = tls_stores.tls_context(
        settings(truststore_certificates=pem, **placed(made, KEY["pkcs12"]))
    )
    assert handshake(made, tmp_path, context) == "client"


def test_the_versions_of_tls(made: Stores) -> None:
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for given, least, most in (
        ({}, old, new),
        ({"enabled_protocols": "TLSv1.3,TLSv1.2,TLSv1"}, old, new),
        ({"enabled_protocols": "TLSv1.3"}, new, new),
        ({"enabled_protocols": "TLSv1.2"}, old, old),
    ):
        context = tls_stores.tls_context(settings(**trust(made), **given))
        assert (context.minimum_version, context.maximum_version) == (least, most)


def test_the_chain_goes_along_in_its_order(made: Stores) -> None:
    """The store was written with the root before the authority in the middle."""
    content = Path(made.path("key.p12")).read_bytes()
    held = tls_stores._pkcs12(content, STORE_PASSWORD)
    names = [made.client, made.middle, made.root]
    assert [ssl.DER_cert_to_PEM_cert(each) for each in held.chain] == [each.pem for each in names]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"truststore_location": "not.there"}, "cannot be read: No such file"),
        ({"truststore_location": "."}, "cannot be read: Is a directory"),
        ({"truststore_location": "other.jceks"}, "keytool -importkeystore -srckeystore"),
        ({"truststore_location": "other.txt"}, "neither PEM nor PKCS12 nor JKS"),
        ({"truststore_location": "empty.pem"}, "holds no certificate"),
        ({"truststore_location": "cut.jks"}, "ends too soon"),
        ({"truststore_location": "cut.p12", "truststore_password": "hunter2"}, "(PKCS12)"),
        ({"truststore_location": "trust.jks", "truststore_password": "hunter2"}, "is wrong"),
        ({"truststore_location": "trust.p12", "truststore_password": "hunter2"}, "Invalid"),
        ({"truststore_location": "trust.p12", "truststore_type": "PEM"}, "of type PKCS12, and PEM"),
        ({"truststore_location": "root.pem", "truststore_type": "JKS"}, "of type PEM, and JKS"),
        ({"keystore_location": "trust.jks"}, "holds no private key"),
        ({"keystore_location": "root.pem"}, "cannot be used"),
        (
            {
                "keystore_location": "key.jks",
                "keystore_password": STORE_PASSWORD,
                "key_password": "hunter2",
            },
            "kafka.ssl.key.password",
        ),
    ],
)
def test_a_store_that_cannot_be_read_is_named(
    made: Stores, options: dict[str, str], said: str
) -> None:
    (made.directory / "other.txt").write_text("some text")
    (made.directory / "empty.pem").write_text("-----BEGIN CERTIFICATE-----\n!\n")
    (made.directory / "cut.jks").write_bytes((made.directory / "trust.jks").read_bytes()[:300])
    (made.directory / "cut.p12").write_bytes((made.directory / "trust.p12").read_bytes()[:300])
    text = refusal(**placed(made, options))
    [store] = {name.partition("_")[0] for name in options} - {"key"}
    assert text.startswith(f"[STORE_NOT_READ] kafka.ssl.{store}.location ")
    assert said in text


def test_bad_inline_keys_are_named_and_not_shown(made: Stores) -> None:
    chain = made.client.pem
    other = made.server.key_pem()
    for key in ("hunter2", "-----BEGIN PRIVATE KEY-----hunter2-----END PRIVATE KEY-----", other):
        text = refusal(keystore_certificate_chain=chain, keystore_key=key)
        assert "[STORE_NOT_READ] kafka.ssl.keystore.key cannot be used" in text


@pytest.mark.parametrize("in_memory", [True, False])
def test_no_key_is_left_behind(
    made: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """Nor while OpenSSL reads it, readable by another user."""
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, path: str, *more: object) -> None:
        seen.append(path)
        if in_memory:
            assert os.readlink(path).startswith("/memfd:")
        else:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            assert stat.S_IMODE(os.stat(Path(path).parent).st_mode) == 0o700
        assert "PRIVATE KEY" in Path(path).read_text()
        load(context, path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    tls_stores.tls_context(settings(**trust(made), **placed(made, KEY["jks"])))
    refusal(keystore_certificate_chain=made.client.pem, keystore_key=made.server.key_pem())
    assert len(seen) == 2
    assert list(tmp_path.iterdir()) == []
    assert not any(os.path.exists(path) and "memfd" in os.readlink(path) for path in seen)


def test_pkcs12_without_its_package_names_it(made: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    text = refusal(**placed(made, TRUST["pkcs12"]))
    assert text.startswith("[PACKAGE_NOT_FOUND]")
    assert "cryptography" in text
    assert "pip install '.[stores]'" in text
    tls_stores.tls_context(settings(**placed(made, TRUST["jks"])))
