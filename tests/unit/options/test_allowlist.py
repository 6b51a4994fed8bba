"""Which modules and paths options may name, where an administrator says so."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import keyrange.options.value_parsers as parsing_module
from keyrange.consumer.settings import CONSUMER_OPTIONS, parse_consumer_options
from keyrange.errors import CATALOGUE, DeniedError, KeyrangeError
from keyrange.guard import entry_points
from keyrange.kafka.security import kerberos, sasl_handshake, tls_stores
from keyrange.members.range_listener_calls import KeyRangeListener
from keyrange.options import OPTIONS, MapInArrow, allowlist, parse_options
from keyrange.options.allowlist import (
    MODULES,
    PATHS,
    NotAllowed,
    check_found,
    check_module,
    check_path,
)
from keyrange.options.kafka_properties import PROPERTIES, ClientSettings
from keyrange.options.secrets import Secret, parse_secret
from keyrange.options.value_parsers import local_path, path_or_uri
from keyrange.options.volume_checks import parse_volume_options
from keyrange.source.map_in_arrow import _imported

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required serviceName=kafka "
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
INDIVIDUAL = {"commitMode": "individual", "splitBy": "keyRange"}
PINNED = {"pin": "prefer", "splitBy": "keyRange"}

# Every option that names a path, with a value that names /place, and what has to stand beside it.
BY_PATH: dict[str, tuple[str, Mapping[str, str]]] = {
    "commitTable": ("/place", INDIVIDUAL),
    "deadLetterTable": ("/place", {**INDIVIDUAL, "commitTable": "/free/c"}),
    "verdictDirectory": ("/place", {**INDIVIDUAL, "commitTable": "/free/c"}),
    "stateDirectory": ("/place", {**INDIVIDUAL, "commitTable": "/free/c"}),
    "objectStore.key": ("file:/place", {**INDIVIDUAL, "commitTable": "/free/c"}),
    "memberTable": ("/place", PINNED),
    "member.name.file": ("/place", {**PINNED, "memberTable": "/free/m"}),
    "slot.directory": ("/place", {**PINNED, "memberTable": "/free/m"}),
    "throttle.factor.file": ("/place", {"throttle.factor.source": "file"}),
    "valueSchema.location": ("/place", {"valueFormat": "json"}),
    "keySchema.location": ("/place", {"keyFormat": "json"}),
    "quota.file": ("/place", {"quota.source": "file"}),
}
KAFKA_BY_PATH: dict[str, str] = {
    **dict.fromkeys(
        (
            "ssl.ca.location",
            "ssl.certificate.location",
            "ssl.key.location",
            "ssl.keystore.location",
            "ssl.truststore.location",
        ),
        "/place",
    ),
    **dict.fromkeys(
        (
            "sasl.jaas.config",
            "sasl.username",
            "sasl.password",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "ssl.truststore.password",
            "ssl.truststore.certificates",
            "ssl.keystore.password",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.key.password",
        ),
        "file:/place",
    ),
    "sasl.oauthbearer.token.endpoint.url": "file:///place",
}
BY_MODULE: dict[str, tuple[str, Mapping[str, str]]] = {
    "mapInArrow": ("place:run", {"mapInArrowSchema": "a int"}),
    "keyRangeListener": ("place:Listener", {**PINNED, "memberTable": "/free/m"}),
}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODULES, raising=False)
    monkeypatch.delenv(PATHS, raising=False)


def refused(options: Mapping[str, str]) -> str:
    with pytest.raises(DeniedError) as caught:
        parse_options({**BASE, **options}, "stream")
    assert caught.value.condition is CATALOGUE["OPTION_NOT_ALLOWED"]
    return str(caught.value)


def is_refused_by(parse: Any, value: str) -> bool:
    try:
        parse(value)
    except NotAllowed:
        return True
    except ValueError:
        pass
    return False


def test_the_tables_are_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that names a path or a module, and is not looked at, is a row too many."""
    monkeypatch.setenv(PATHS, "")
    monkeypatch.setenv(MODULES, "")
    rows = [*OPTIONS, *CONSUMER_OPTIONS]
    looked_at = {row.name for row in rows if is_refused_by(row.parse, "/place")}
    assert looked_at | {"objectStore.key"} == BY_PATH.keys()
    assert {row.name for row in rows if is_refused_by(row.parse, "place:run")} - looked_at == (
        BY_MODULE.keys()
    )
    by_words = {
        row.name
        for row in rows
        if any(word in row.values for word in ("path", "URI", "directory", "package.module"))
    }
    assert by_words | {"deadLetterTable"} == looked_at | BY_MODULE.keys()

    mapped = [row for row in PROPERTIES.values() if row.field]
    kafka = {
        row.name
        for row in mapped
        if any(
            is_refused_by(row.parse, each) for each in ("/place", "file:/place", "file:///place")
        )
    }
    assert kafka == KAFKA_BY_PATH.keys()
    secrets = {each.name for each in fields(ClientSettings) if each.type == "Secret"}
    assert {row.name for row in mapped if "location" in row.name or row.field in secrets} <= kafka
    assert {row.name for row in mapped if row.parse is parse_secret} <= kafka


def test_each_parser_that_takes_a_place_or_a_module_looks() -> None:
    source = ast.parse(inspect.getsource(parsing_module))
    lookers = {
        node.name
        for node in source.body
        if isinstance(node, ast.FunctionDef) and "check_" in ast.unparse(node)
    }
    assert lookers == {"path_or_uri", "local_path", "importable"}


@pytest.mark.parametrize("name", BY_PATH)
def test_paths_of_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, beside = BY_PATH[name]
    parse_options({**BASE, **beside, name: value}, "stream")
    monkeypatch.setenv(PATHS, "/free")
    text = refused({**beside, name: value})
    assert f"'{name}'" in text
    assert PATHS in text
    monkeypatch.setenv(PATHS, "/free, /place")
    parse_options({**BASE, **beside, name: value}, "stream")


@pytest.mark.parametrize("name", KAFKA_BY_PATH)
@pytest.mark.parametrize("prefix", ["kafka.", "kafka.admin."])
def test_paths_of_the_client(name: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATHS, "/free")
    given = {f"{prefix}{name}": KAFKA_BY_PATH[name], "kafka.admin.bootstrap.servers": "h:1"}
    assert f"'{prefix}{name}'" in refused(given)


@pytest.mark.parametrize(
    "entry",
    [
        PLAIN + 'username="u" password="file:/place";',
        KERBEROS + 'useKeyTab=true keyTab="/place";',
        KERBEROS + 'useKeyTab=true keyTab="FILE:/place";',
        KERBEROS + 'useTicketCache=true ticketCache="DIR:/place";',
        KERBEROS + 'useTicketCache=true ticketCache="/free/../place";',
        OAUTH + 'clientId=a clientSecret=b ssl.truststore.location="/place";',
    ],
)
def test_paths_within_a_login(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = "PLAIN" if entry.startswith(PLAIN) else "GSSAPI"
    given = {"kafka.sasl.jaas.config": entry, "kafka.security.protocol": "SASL_SSL"}
    given["kafka.sasl.mechanism"] = mechanism
    if entry.startswith(OAUTH):
        given["kafka.sasl.mechanism"] = "OAUTHBEARER"
        given["kafka.sasl.oauthbearer.token.endpoint.url"] = "https://sso.example"
    parse_options({**BASE, **given})
    monkeypatch.setenv(PATHS, "/free")
    assert "'kafka.sasl.jaas.config'" in refused(given)
    monkeypatch.setenv(PATHS, "/place")
    if "/free" not in entry:
        parse_options({**BASE, **given})


@pytest.mark.parametrize("name", BY_MODULE)
def test_modules_of_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, beside = BY_MODULE[name]
    parse_options({**BASE, **beside, name: value}, "stream")
    monkeypatch.setenv(MODULES, "jobs,plac,place.inner")
    assert f"'{name}'" in refused({**beside, name: value})
    monkeypatch.setenv(MODULES, "jobs,place")
    parse_options({**BASE, **beside, name: value}, "stream")
    parse_options({**BASE, **beside, name: f"place.inner.{value}"}, "stream")


def test_all_of_them_are_named_at_once_and_a_consumer_is_told_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PATHS, "")
    monkeypatch.setenv(MODULES, "")
    text = refused({"mapInArrow": "os:abort", "kafka.ssl.ca.location": "/x", "nonsense": "1"})
    assert "mapInArrow" in text
    assert "ssl.ca.location" in text
    with pytest.raises(DeniedError, match=r"OPTION_NOT_ALLOWED.*commitTable"):
        parse_consumer_options({"kafka.bootstrap.servers": "h:1", "commitTable": "/x"})


def test_no_option_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODULES, "jobs")
    for name in (MODULES, MODULES.lower(), "spark.keyrange.allowed.modules", "allowed.modules"):
        given = {"mapInArrow": "os:abort", "mapInArrowSchema": "a int", name: "os"}
        assert "mapInArrow" in refused(given)


@pytest.mark.parametrize(
    ("prefixes", "path", "allowed"),
    [
        ("/data", "/data", True),
        ("/data", "/data/x", True),
        ("/data/", "/data/x", True),
        ("/data", "/data2", False),
        ("/data", "/data/../etc/passwd", False),
        ("/data", "/data/x/../../etc", False),
        ("/data", "//data//x", True),
        ("/data", "data", False),
        ("/data", "file:/data/x", True),
        ("/data", "file:///data/x", True),
        ("/data", "file://localhost/data/x", True),
        ("/data", "file:///etc/x", False),
        ("/data", "file:///data/%2e%2e/etc/x", False),
        ("/data", "FILE:/etc/x", False),
        ("/data", "file:/data/a%20b", True),
        ("file:/data", "/data/x", True),
        ("/data", "s3://data/x", False),
        ("s3://bucket/jobs", "s3://bucket/jobs/x", True),
        ("s3://bucket/jobs", "S3://bucket/jobs", True),
        ("s3://bucket/jobs", "s3://bucket/jobs2", False),
        ("s3://bucket/jobs", "s3://bucket/jobs/../other", False),
        ("s3://bucket/jobs", "s3://bucket/jobs/%2e%2e/other", False),
        ("s3://bucket/jobs", "s3://bucket/jobs/..\\other", False),
        ("s3://bucket", "s3a://bucket/x", False),
        ("/", "/anything", True),
        ("/", "s3://bucket", False),
        ("", "/data", False),
        ("lake.commits", "lake.commits", True),
        ("lake", "delta.`/etc/x`", False),
        ("/data", "/data/\0", False),
        ("/a,/b", "/b/c", True),
    ],
)
def test_how_paths_are_compared(
    prefixes: str, path: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATHS, prefixes)
    if allowed:
        check_path(path)
    else:
        with pytest.raises(NotAllowed):
            check_path(path)


def test_links_are_followed_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "out").symlink_to("/etc")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for prefix in ("real", "link"):
        monkeypatch.setenv(PATHS, str(tmp_path / prefix))
        for inside in ("real/x", "link/x", "real", "link/../real/y"):
            check_path(str(tmp_path / inside))
        for outside in ("real/out/passwd", "link/out", "other"):
            with pytest.raises(NotAllowed):
                check_path(str(tmp_path / outside))


def test_a_relative_path_is_one_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PATHS, str(tmp_path))
    check_path("./ca.pem")
    with pytest.raises(NotAllowed):
        check_path("../ca.pem")


def test_what_an_allowed_module_imports_is_not_allowed_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = check_found.__module__
    name = f"{own}:os.abort"
    mapping = MapInArrow(*name.split(":"), schema="{}")
    assert callable(_imported(mapping))
    monkeypatch.setenv(MODULES, own)
    assert callable(_imported(MapInArrow(own, "check_found", "{}")))
    with pytest.raises(KeyrangeError, match=r"OPTION_NOT_ALLOWED.*mapInArrow"):
        _imported(mapping)
    for found in (partial(check_found), [].append, len, "text", SimpleNamespace()):
        with pytest.raises(NotAllowed):
            check_found(found)


def test_where_modules_are_imported_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an executor: its environment may allow less than the driver's, and nothing is imported."""
    monkeypatch.setenv(MODULES, "jobs")
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"imports {name}"))
    with pytest.raises(KeyrangeError, match=r"OPTION_NOT_ALLOWED.*'mapInArrow' must not name os:"):
        _imported(MapInArrow("os", "abort", "{}"))


def test_entry_points_are_modules_too(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("other", "os:abort", "keyrange.quota_sources")
    monkeypatch.setattr(entry_points, "entry_points", lambda **_: [entry])
    monkeypatch.setenv(MODULES, "jobs")
    options = parse_options(BASE, "stream").volumes
    with pytest.raises(KeyrangeError, match=r"OPTION_NOT_ALLOWED.*quota\.source"):
        entry_points.open_source("other", options, {}, "keyrange.quota_sources", "quota.source")


def test_a_path_that_the_guard_may_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATHS, "/free")
    given = {
        "kafka.admin.bootstrap.servers": "b:9092",
        "kafka.admin.ssl.truststore.location": "/etc/x.pem",
        "min.available.ratio": "0.1",
    }
    with pytest.raises(DeniedError, match=r"OPTION_NOT_ALLOWED.*truststore"):
        parse_volume_options(given)


def test_where_files_are_opened_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret-word")
    kept = parse_secret(f"file:{secret}")
    assert kept.reveal() == "s3cret-word"
    monkeypatch.setenv(PATHS, "/free")
    with pytest.raises(DeniedError, match=r"OPTION_NOT_ALLOWED") as caught:
        kept.reveal()
    assert "s3cret-word" not in str(caught.value)
    for settings in (
        ClientSettings(security_protocol="SSL", ssl_truststore_location=str(secret)),
        ClientSettings(security_protocol="SSL", ssl_keystore_location=str(secret)),
    ):
        with pytest.raises(DeniedError, match=r"OPTION_NOT_ALLOWED.*kafka\.ssl"):
            tls_stores.tls_context(settings)
    for login in ({"ticketCache": "FILE:/x"}, {"keyTab": "/x", "useKeyTab": "true"}):
        with pytest.raises(DeniedError, match=r"OPTION_NOT_ALLOWED.*jaas"):
            kerberos.ticket_store(login)


def test_a_login_by_reference_is_looked_at_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOGIN", PLAIN + 'username="u" password="file:/place";')
    monkeypatch.setenv(PATHS, "/free")
    settings = ClientSettings(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas=Secret("env:LOGIN")
    )
    with pytest.raises(DeniedError, match=r"OPTION_NOT_ALLOWED.*jaas"):
        sasl_handshake.new_client(settings, "h")


def test_parsers_of_paths_say_what_they_did_before() -> None:
    assert path_or_uri(" /a ") == "/a"
    assert local_path("") == ""
    check_module("os")
    check_found(len)
    assert allowlist.MODULES == "KEYRANGE_ALLOWED_MODULES"
    assert KeyRangeListener.__module__.startswith("keyrange.")
