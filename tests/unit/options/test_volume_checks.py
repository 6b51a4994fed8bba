"""The options of the volume guard: defaults, limits, and what must not be said together."""

from __future__ import annotations

import logging

import pytest

from keyrange.errors import InvalidError
from keyrange.guard.enforcer import settings_of
from keyrange.model.volumes import Limit, Policy, VolumeName
from keyrange.options import SourceOptions, check_names, parse_options
from keyrange.options.volume_checks import VolumeOptions, parse_volume_options
from keyrange.options.volumes import VOLUME_ROWS

SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
ADMIN = {"kafka.admin.bootstrap.servers": "a:1"}
ON = {**ADMIN, "guard.admission": "true", "min.available.bytes": "10g"}
ENFORCED = {**ON, "guard.enforce": "true", "guard.reaper": "cronjob/reap"}


def source(given: dict[str, str]) -> SourceOptions:
    return parse_options(SOURCE | given, "stream")


def violations(given: dict[str, str], alone: bool = False) -> list[str]:
    parse = parse_volume_options if alone else source
    with pytest.raises(InvalidError) as raised:
        parse(given)
    assert raised.value.condition.name == "INVALID_OPTIONS"
    return raised.value.message.split("; ")


def test_nothing_is_guarded_unless_it_is_asked_for() -> None:
    volumes = source({}).volumes

    assert volumes == VolumeOptions()
    assert not volumes.is_on
    assert volumes.client is None


def test_what_a_query_that_is_held_back_has() -> None:
    volumes = source(ON).volumes

    assert volumes.is_on
    assert volumes.admission
    assert not volumes.enforce
    assert volumes.policy == Policy(Limit(min_available_bytes=10 << 30), 1.0, 300_000, 60_000)
    assert (volumes.factor_source, volumes.quota_source) == ("cluster-volumes", "static")
    assert volumes.client is not None
    assert volumes.client.bootstrap_servers == (("a", 1),)


def test_volumes_may_have_limits_of_their_own() -> None:
    given = " 0.1; 3:/data/a=b = 0.05 ;*:/archive/*=1"
    found = parse_volume_options({**ADMIN, "min.available.ratio": given}).policy
    assert found is not None
    assert found.limit == Limit(
        min_available_ratio=0.1,
        others=(
            Limit(min_available_ratio=0.05, name=VolumeName(3, "/data/a=b")),
            Limit(min_available_ratio=1.0, name=VolumeName(None, "/archive/*")),
        ),
    )
    found = parse_volume_options({**ADMIN, "min.available.bytes": "10g;0:/d=512m"}).policy
    assert found is not None
    assert found.limit == Limit(
        min_available_bytes=10 << 30,
        others=(Limit(min_available_bytes=512 << 20, name=VolumeName(0, "/d")),),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0.1;", "must be a limit, and behind each ';' BROKER:LOG_DIR=LIMIT"),
        ("0.1;/data=0.2", "not '/data=0.2'"),
        ("0.1;-1:/data=0.2", "not '-1:/data=0.2'"),
        ("0.1;1:=0.2", "not '1:=0.2'"),
        ("0.1;1:/data", "not '1:/data'"),
        ("0.1;1:/data=2", "must be a number from 0.0 to 1.0, not '2'"),
        ("1:/data=0.2", "must be a number from 0.0 to 1.0, not '1:/data=0.2'"),
    ],
)
def test_a_limit_of_a_volume_names_broker_and_log_dir(given: str, said: str) -> None:
    [only] = violations({**ADMIN, "min.available.ratio": given}, alone=True)
    assert only.startswith("option 'min.available.ratio' must be")
    assert said in only


def test_enforcement_is_a_dry_run_unless_it_is_said() -> None:
    assert source(ENFORCED).volumes.dry_run
    volumes = source({**ENFORCED, "guard.dry.run": "false"}).volumes

    assert volumes.enforce
    assert not volumes.dry_run
    assert volumes.reaper == "cronjob/reap"
    assert (volumes.mute_ms, volumes.connections, volumes.request_bytes) == (60_000, 8, 1 << 20)
    assert (volumes.lease_ms, volumes.base_rate) == (60_000, 1 << 30)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("throttle.factor.fallback", "0.0", "fallback", 0.0),
        ("throttle.factor.fallback", ".5", "fallback", 0.5),
        ("throttle.factor.validity.duration", "PT1H30M", "validity_ms", 5_400_000),
        ("storage.check.interval", "pt0.5s", "interval_ms", 500),
        ("guard.exclude", "User:a; User:CN=b,O=c ;", "excluded", frozenset({"a", "CN=b,O=c"})),
        ("guard.max.mute.ms", "22000", "mute_ms", 22_000),
        ("guard.connections", "1", "connections", 1),
        ("guard.request.max.bytes", "8m", "request_bytes", 8 << 20),
        ("guard.lease.ms", "22000", "lease_ms", 22_000),
        ("quota.producer.byte.rate", "64m", "base_rate", 64 << 20),
        ("quota.source", "house-quotas", "quota_source", "house-quotas"),
        ("throttle.factor.source", "house", "factor_source", "house"),
    ],
)
def test_each_value_arrives(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(source({**ON, name: value}).volumes, field) == expected


def test_the_ratio_is_the_other_limit() -> None:
    volumes = source({**ADMIN, "guard.admission": "true", "min.available.ratio": "0.01"}).volumes

    assert volumes.policy is not None
    assert volumes.policy.limit == Limit(min_available_ratio=0.01)


def test_other_sources_bring_their_settings_and_need_no_limit() -> None:
    on = {"guard.admission": "true"}
    static = source({**on, "throttle.factor.source": "static", "throttle.factor": "0.5"}).volumes
    file = source({**on, "throttle.factor.source": "file", "throttle.factor.file": "/f"}).volumes
    quota = source({**ON, "quota.source": "file", "quota.file": "/q"}).volumes

    assert (static.static_factor, static.policy, static.client) == (0.5, None, None)
    assert static.is_on
    assert file.factor_file == "/f"
    said = {"throttle.factor.source": "topic", "throttle.factor.topic": "decided"}
    topic = source({**ADMIN, **on, **said}).volumes
    assert (topic.factor_topic, topic.policy) == ("decided", None)
    # It is in the cluster of these properties.
    assert topic.client is not None
    with pytest.raises(InvalidError, match=r"kafka\.admin\.bootstrap\.servers"):
        source({**on, **said})
    assert quota.quota_file == "/q"


def test_an_interval_of_nothing_turns_it_off() -> None:
    volumes = source({"guard.admission": "true", "storage.check.interval": "PT0S"}).volumes

    assert not volumes.is_on


def test_the_admin_client_inherits_nothing() -> None:
    volumes = source({**ON, "kafka.client.id": "query"}).volumes

    assert volumes.client is not None
    assert volumes.client.client_id == "keyrange"


def test_the_admin_client_has_properties_of_its_own() -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=w;"
    given = {
        **ON,
        "kafka.admin.security.protocol": "SASL_PLAINTEXT",
        "KAFKA.admin.sasl.mechanism": "PLAIN",
        "kafka.admin.sasl.jaas.config": jaas.replace("=w;", '="hidden-word";'),
    }
    options = source(given)

    assert options.volumes.client is not None
    assert options.volumes.client.security_protocol == "SASL_PLAINTEXT"
    assert options.client.security_protocol == "PLAINTEXT"
    assert "hidden-word" not in repr(options)


WRONG = [
    ({"min.available.bytes": "-1"}, "option 'min.available.bytes' must be"),
    ({"min.available.ratio": "1.01"}, "must be a number from 0.0 to 1.0, not '1.01'"),
    ({"min.available.ratio": "nan"}, "must be a number from 0.0 to 1.0, not 'nan'"),
    ({"throttle.factor.fallback": "-0.1"}, "option 'throttle.factor.fallback' must be a number"),
    ({"throttle.factor.validity.duration": "5m"}, "must be an ISO 8601 duration"),
    ({"storage.check.interval": "P1M"}, "option 'storage.check.interval' must be an ISO 8601"),
    (
        {"throttle.factor.validity.duration": "PT59S"},
        "must be at least storage.check.interval: 59000 and 60000 ms",
    ),
    ({"guard.exclude": "alice"}, "option 'guard.exclude' must hold principals as User:NAME"),
    ({"guard.exclude": "User:"}, "must hold principals as User:NAME"),
    ({"guard.exclude": ""}, "must hold principals as User:NAME"),
    ({"guard.max.mute.ms": "21999"}, "must be between 22000"),
    ({"guard.lease.ms": "21999"}, "must be between 22000"),
    ({"guard.connections": "0"}, "option 'guard.connections' must be between 1"),
    ({"guard.reaper": " "}, "option 'guard.reaper' must not be empty"),
    ({"quota.source": "a b"}, "option 'quota.source' must be the name of an entry point"),
    ({"throttle.factor": "0.5"}, "is for throttle.factor.source=static only"),
    ({"quota.file": "/q"}, "option 'quota.file' is for quota.source=file only"),
    ({"throttle.factor.source": "static"}, "'throttle.factor.source' static needs throttle.factor"),
    ({"quota.source": "file"}, "option 'quota.source' file needs quota.file"),
    ({"kafka.admin.nonsense": "1"}, "option 'kafka.admin.nonsense' is not a property"),
    (
        {"kafka.admin.security.protocol": "SASL_SSL", "kafka.admin.sasl.mechanism": "PLAIN"},
        "option 'kafka.admin.sasl.jaas.config' must hold username and password for PLAIN, or "
        "kafka.admin.sasl.username and kafka.admin.sasl.password be given",
    ),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    base = {name: value for name, value in ON.items() if not name.startswith("min.")}
    limit = {} if any(name.startswith("min.") for name in given) else {"min.available.bytes": "1"}
    found = violations(base | limit | given)

    assert len([each for each in found if said in each]) == 1, found


def test_a_limit_that_is_wrong_is_not_said_to_be_missing() -> None:
    base = {name: value for name, value in ON.items() if not name.startswith("min.")}
    [only] = violations(base | {"min.available.ratio": "1.5"})
    assert only == "option 'min.available.ratio' must be a number from 0.0 to 1.0, not '1.5'"


def test_two_limits_are_refused_also_where_nothing_is_guarded() -> None:
    assert violations({"min.available.bytes": "1", "min.available.ratio": "0.1"}) == [
        "option 'min.available.ratio' must not be given with min.available.bytes"
    ]


def test_everything_wrong_is_said_together() -> None:
    found = violations(
        {
            "guard.admission": "true",
            "guard.enforce": "true",
            "throttle.factor.fallback": "0.5",
            "storage.check.interval": "PT10M",
            "guard.connections": "many",
        }
    )

    assert found == [
        "option 'guard.connections' must be a whole number, not 'many'",
        "option 'throttle.factor.validity.duration' must be at least storage.check.interval: "
        "300000 and 600000 ms",
        "option 'guard.enforce' needs guard.reaper, which names the job that releases the "
        "producers when the guard is dead",
        "option 'throttle.factor.fallback' 0.5 needs quota.producer.byte.rate with guard.enforce: "
        "it is a share of that rate",
        "option 'kafka.admin.bootstrap.servers' must be specified",
        "one of the options min.available.bytes and min.available.ratio must be specified",
    ]


def test_a_part_of_a_quota_needs_the_quota() -> None:
    given = {**ENFORCED, "throttle.factor.fallback": "0.5"}

    assert violations(given)[0].startswith("option 'throttle.factor.fallback' 0.5 needs")
    assert source({**given, "quota.producer.byte.rate": "1m"}).volumes.fallback == 0.5
    assert source({**ON, "throttle.factor.fallback": "0.5"}).volumes.fallback == 0.5


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("min.available.ratio", "1.0", "the throttle factor is always 0.0"),
        ("min.available.ratio", "0", "nothing is held back before a volume is full"),
        ("min.available.bytes", "0", "nothing is held back before a volume is full"),
        ("min.available.ratio", "0.1;*:/d=1", "the throttle factor is always 0.0"),
        ("min.available.bytes", "1g;*:/d=0", "nothing is held back before a volume is full"),
    ],
)
def test_the_ends_of_the_ranges_are_warned_of(
    option: str, value: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        source({**ADMIN, "guard.admission": "true", option: value})
    assert said in caplog.text


def test_the_guard_by_itself() -> None:
    given = {name.upper(): value for name, value in ADMIN.items()}
    volumes = parse_volume_options({**given, "min.available.ratio": "0.1"})

    assert volumes.policy is not None
    assert not volumes.is_on
    assert parse_volume_options(ADMIN, needs_limit=False).policy is None


def test_the_guard_by_itself_refuses_as_much() -> None:
    assert violations({"subscribe": "t", "min.available.byte": "1"}, alone=True) == [
        "option 'subscribe' is not one of the volume guard's",
        "option 'min.available.byte' is not one of the volume guard's "
        "(did you mean 'min.available.bytes'?)",
        "option 'kafka.admin.bootstrap.servers' must be specified",
        "one of the options min.available.bytes and min.available.ratio must be specified",
    ]


def test_a_batch_read_has_no_guard() -> None:
    with pytest.raises(InvalidError, match=r"'guard.admission' is not valid in batch reads"):
        parse_options(SOURCE | ON, "batch")


def test_every_option_of_the_guard_is_given_once_here() -> None:
    given = {name for wrong, _ in WRONG for name in wrong} | ENFORCED.keys()
    others = {"throttle.factor.file", "throttle.factor.topic", "quota.producer.byte.rate"}
    others |= {"guard.dry.run", "guard.request.max.bytes"}
    assert {row.name for row in VOLUME_ROWS} - given == others


def test_what_a_guard_that_enforces_goes_by() -> None:
    volumes = source({**ENFORCED, "guard.dry.run": "false", "guard.exclude": "User:tool"}).volumes
    settings = settings_of(volumes, base_rate=5_000_000, stamp=9, chance=7)

    assert (settings.base, settings.stamp, settings.chance) == (5_000_000, 9, 7)
    # Eight requests of 1 MiB in the minute less a window.
    assert settings.floor == 171_197
    assert settings.excluded == {"tool"}
    assert (settings.lease_ms, settings.release_ms, settings.dry_run) == (60_000, 60_000, False)
    assert settings_of(source(ENFORCED).volumes, 1, 1, 1).dry_run
    not_asked_for = source({**ON, "guard.dry.run": "false"}).volumes
    assert settings_of(not_asked_for, 1, 1, 1).dry_run


def test_names_of_the_admin_client_are_known_by_themselves() -> None:
    check_names(["kafka.admin.bootstrap.servers", "kafka.security.protocol"])
    with pytest.raises(InvalidError, match=r"did you mean 'kafka\.admin\.bootstrap\.servers'"):
        check_names(["kafka.admin.bootstrap.server"])
