"""GSSAPI with a real KDC: key tabs and ticket caches, tickets that end, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.logins import COUNT, ends, for_spark, login_options, parsed, read_slowly
from brokers.real_broker import PASSWORD, USER, Record, Topics, wait_until
from brokers.secured_brokers import SecuredBroker, SecuredSettings
from guards.guard_processes import ALICE, ClusterQuotas, by_file, guarding, quotas_at
from keyrange import Consumer
from keyrange.embedded.process import HOST
from keyrange.errors import DeniedError, InvalidError, UnavailableError
from keyrange.guard.model.quota_entities import RATE
from keyrange.options.kafka_properties import ClientSettings
from platforms.kdc import (
    REALM,
    SERVICE,
    TICKET_S,
    Kdc,
    by_cache,
    by_key_tab,
    repeated,
    with_clock,
)
from platforms.secured_stream import SLOWLY, run_streams
from queries.sharing_consumer import sharing_options

SESSION_S = 4.0
READER = f"reader@{REALM}"


@pytest.fixture(scope="module")
def topics(kdc: Kdc) -> Iterator[Topics]:
    """A broker with short sessions that takes tickets."""
    key_tab = kdc.add(SERVICE)
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{key_tab}" principal="{SERVICE}@{REALM}";'
    )
    settings = SecuredSettings(
        listeners=("SASL_PLAINTEXT",),
        users={USER: PASSWORD},
        properties={
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
            "connections.max.reauth.ms": f"{SESSION_S * 1000:.0f}",
        },
        jvm_options=(f"-Djava.security.krb5.conf={kdc.conf}",),
    )
    with SecuredBroker(settings) as broker:
        made = Topics(broker)
        yield made
        made.close()


def client(topics: Topics, jaas: str, **given: str) -> ClientSettings:
    options = login_options(topics, "GSSAPI", jaas)
    return parsed(options | {name.replace("_", "."): value for name, value in given.items()})


def test_logins(kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path) -> None:
    """As the guide has them: a key tab, a cache of kinit, and both, which fills the cache."""
    cache, filled = tmp_path / "cache", tmp_path / "filled"
    kdc.kinit("reader", reader, cache)
    both = by_key_tab(reader, "reader").replace(
        "useKeyTab", f'useTicketCache=true ticketCache="{filled}" useKeyTab'
    )
    mine = f'principal="{READER}"'
    for jaas in (by_key_tab(reader, "reader"), by_cache(cache), by_cache(cache, mine), both):
        assert ends(client(topics, jaas), topic) == COUNT
    assert filled.exists()


def test_reading_for_longer_than_tickets_and_sessions(
    kdc: Kdc, topics: Topics, topic: str, reader: Path
) -> None:
    """A key tab brings new tickets by itself."""
    before = kdc.logins("reader")
    settings = client(topics, by_key_tab(reader, "reader"), max_partition_fetch_bytes="40000")
    assert read_slowly(settings, topic, COUNT, 2.2 * TICKET_S) == list(range(COUNT))
    assert kdc.logins("reader") - before >= 2


def test_reading_with_a_cache_that_something_else_renews(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    kdc.kinit("reader", reader, cache)
    settings = client(topics, by_cache(cache), max_partition_fetch_bytes="40000")
    with repeated(lambda: kdc.kinit("reader", reader, cache), TICKET_S / 4):
        assert read_slowly(settings, topic, COUNT, 1.5 * TICKET_S) == list(range(COUNT))


def test_a_cache_that_is_written_while_it_is_read(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    """kinit empties a cache before it fills it, and a new session may begin between the two."""
    cache = tmp_path / "cache"
    kdc.kinit("reader", reader, cache)
    settings = client(topics, by_cache(cache))
    with repeated(lambda: kdc.kinit("reader", reader, cache), 0.0):
        assert [ends(settings, topic) for _ in range(200)] == [COUNT] * 200


def test_a_cache_that_nobody_renews(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    kdc.kinit("reader", reader, cache)
    settings = client(topics, by_cache(cache), max_partition_fetch_bytes="40000")
    with pytest.raises(DeniedError, match=r"\[NO_KERBEROS_TICKET\].*Ticket expired") as failure:
        read_slowly(settings, topic, COUNT, 2.2 * TICKET_S)
    assert f"renew the ticket in {cache} where this process runs" in str(failure.value)
    with pytest.raises(DeniedError, match="Ticket expired"):
        ends(settings, topic)


def test_what_is_wrong_with_a_key_tab(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"hunter2")
    old = kdc.add("renewed")
    kdc.export("renewed")
    gone = kdc.add("gone")
    kdc.admin("delprinc", "-force", "gone")
    wrong = {
        by_key_tab(reader, "writer"): rf"{reader} holds no key of writer@{REALM}; klist -k",
        by_key_tab(junk, "reader"): rf"{junk} holds no key of {READER}",
        by_key_tab(old, "renewed"): rf"the keys in {old} are not the principal's of today",
        by_key_tab(gone, "gone"): rf"Client 'gone@{REALM}' not found in Kerberos database",
        by_key_tab(reader, "reader", "kafkaa"): rf"Server kafkaa/{HOST}@{REALM} not found",
    }
    for jaas, said in wrong.items():
        with pytest.raises(DeniedError, match=r"^\[NO_KERBEROS_TICKET\]") as failure:
            ends(client(topics, jaas), topic)
        failure.match(said)
        failure.match(r"To mend it: check serviceName, principal, keyTab")
        assert "hunter2" not in str(failure.value)
    absent = by_key_tab(tmp_path / "absent", "reader")
    with pytest.raises(InvalidError, match=rf"SECRET_NOT_FOUND.*keyTab {tmp_path}/absent"):
        ends(client(topics, absent), topic)


def test_what_is_wrong_with_a_cache(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    cache, absent, junk = (tmp_path / name for name in ("cache", "absent", "junk"))
    kdc.kinit("reader", reader, cache)
    junk.write_bytes(b"hunter2")
    wrong = {
        by_cache(absent): rf"{absent} holds no ticket where this process runs: kinit",
        by_cache(): r"the default ticket cache holds no ticket",
        by_cache(junk): r"Unsupported credentials cache format",
        by_cache(cache, f'principal="writer@{REALM}"'): r"does not match.*principal=writer@",
    }
    for jaas, said in wrong.items():
        with pytest.raises(DeniedError, match=r"^\[NO_KERBEROS_TICKET\]") as failure:
            ends(client(topics, jaas), topic)
        failure.match(said)
        assert "hunter2" not in str(failure.value)


def test_a_broker_whose_keys_are_old(kdc: Kdc, topics: Topics, topic: str, reader: Path) -> None:
    """The KDC gives a ticket, and the broker cannot read it. Here: of a service that it is not."""
    kdc.add(f"other/{HOST}")
    with pytest.raises(DeniedError, match=r"^\[SASL_AUTHENTICATION_FAILED\]") as failure:
        ends(client(topics, by_key_tab(reader, "reader", "other")), topic)
    failure.match(r"mechanism=GSSAPI, user=reader@")
    failure.match(r"a broker refuses a ticket whose key its key tab does not hold")


def test_a_kdc_that_is_gone(kdc: Kdc, topics: Topics, topic: str, reader: Path) -> None:
    settings = client(topics, by_key_tab(reader, "reader"))
    stranger = by_key_tab(kdc.add("stranger"), "stranger")
    kdc.stop()
    try:
        with pytest.raises(UnavailableError, match=r"^\[KDC_UNREACHABLE\]") as failure:
            ends(client(topics, stranger), topic)
        failure.match(rf"Cannot contact any KDC for realm '{REALM}'")
        failure.match(r"KRB5_CONFIG")
    finally:
        kdc.start()
    assert ends(settings, topic) == COUNT


def test_a_kdc_that_is_silent(kdc: Kdc, topics: Topics, topic: str) -> None:
    """The library gives it up by itself, after most of a minute."""
    stranger = by_key_tab(kdc.add("patient"), "patient")
    kdc.stop()
    try:
        with socket.create_server((HOST, kdc.port)), socket.socket(type=socket.SOCK_DGRAM) as heard:
            heard.bind((HOST, kdc.port))
            with pytest.raises(UnavailableError, match=r"^\[KDC_UNREACHABLE\]"):
                ends(client(topics, stranger), topic)
    finally:
        kdc.start()


def test_reading_while_the_kdc_is_away(kdc: Kdc, topics: Topics, topic: str, reader: Path) -> None:
    """What is read waits for as long as for a broker."""
    settings = client(topics, by_key_tab(reader, "reader"), max_partition_fetch_bytes="40000")
    ended = threading.Timer(2.0 * TICKET_S, kdc.start)
    asked = threading.Timer(0.3 * TICKET_S, kdc.stop)
    try:
        for each in (asked, ended):
            each.start()
        assert read_slowly(settings, topic, COUNT, 2.5 * TICKET_S) == list(range(COUNT))
    finally:
        for each in (asked, ended):
            each.join()


def doctor(topics: Topics, topic: str, tmp_path: Path, jaas: str, **more: str) -> tuple[str, str]:
    """What the command says of the cluster, with its login in a file, in an environment with
    `more`."""
    (tmp_path / "jaas").write_text(jaas)
    named = for_spark(login_options(topics, "GSSAPI", f"@{tmp_path}/jaas"))
    servers = named.pop("kafka.bootstrap.servers")
    command = [sys.executable, "-P", "-m", "keyrange.cli.main", "doctor", "--output", "json"]
    command += ["--bootstrap-servers", servers, "--topic", topic]
    command += [part for each in named.items() for part in ("--option", "=".join(each))]
    done = subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, check=False
    )
    findings = json.loads(done.stdout)["findings"]
    [found] = [each for each in findings if each["check"] == "cluster"]
    return found["state"], found["detail"]


def test_clocks_that_differ(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    """A client whose clock is wrong takes the KDC's; a KDC whose clock is wrong is believed by
    clients, and not by brokers."""
    other = by_key_tab(kdc.add("timely"), "timely")
    for clock in ({}, with_clock("+20m")):
        state, said = doctor(topics, topic, tmp_path, other, **clock)
        assert state == "ok", said
    cache = tmp_path / "cache"
    kdc.kinit("timely", kdc.export("timely"), cache)
    state, said = doctor(topics, topic, tmp_path, by_cache(cache), **with_clock("+20m"))
    assert state == "failed"
    assert "clocks that agree within minutes" in said
    other = by_key_tab(kdc.export("timely"), "timely")
    kdc.stop()
    kdc.start("+20m")
    try:
        state, said = doctor(topics, topic, tmp_path, other)
    finally:
        kdc.stop()
        kdc.start()
    assert state == "failed"
    assert "SASL_AUTHENTICATION_FAILED" in said, said
    assert "clocks that agree within minutes" in said


def test_consumers_outlive_their_tickets(
    kdc: Kdc, topics: Topics, reader: Path, tmp_path: Path
) -> None:
    """Heartbeats, fetches and commits go over connections that are replaced; nobody loses a range,
    and each record is handed out once."""
    topic = topics.create_topic("shared", 2)
    login = for_spark(login_options(topics, "GSSAPI", by_key_tab(reader, "reader")))
    made = [
        Consumer(
            sharing_options("", tmp_path / "commits", f"one-{at}", 30_000, memberGroup=topic)
            | login
        )
        for at in range(2)
    ]
    generations: set[tuple[int, ...]] = set()
    seen: list[bytes] = []
    sent = 0

    def turn() -> None:
        for each in made:
            records = each.poll_records(200)
            each.acknowledge(records)
            each.commit()
            seen.extend(record.value or b"" for record in records)

    try:
        for each in made:
            each.subscribe([topic])
        wait_until(lambda: turn() or all(each.assignment() for each in made))
        ended = time.monotonic() + 2.2 * TICKET_S
        while time.monotonic() < ended:
            topics.produce(topic, [Record(b"%d" % n, b"%d" % n) for n in range(sent, sent + 20)])
            sent += 20
            turn()
            members = [each._sharing and each._sharing.member for each in made]
            generations.add(tuple(each.seen.generation for each in members if each is not None))
        wait_until(lambda: turn() or len(seen) >= sent)
    finally:
        for each in made:
            each.close()
    assert sorted(map(int, seen)) == list(range(sent))
    assert len(generations) == 1, generations


def test_a_guard_outlives_its_tickets(
    kdc: Kdc, topics: Topics, reader: Path, tmp_path: Path
) -> None:
    """Quotas are read and altered with the login of kafka.admin.*, and restored in the end."""
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("0")
    login = login_options(topics, "GSSAPI", by_key_tab(reader, "reader"))
    servers = login.pop("bootstrap.servers")
    options = {f"kafka.admin.{name}": value for name, value in login.items()}
    options |= by_file(factor) | {"guard.dry.run": "false"}
    with (
        quotas_at(topics.cluster, {ALICE: {RATE: 4_000_000.0}}) as quotas,
        guarding(topics.cluster, log, options, servers=servers) as process,
    ):
        wait_until(lambda: rate(quotas) < 4_000_000)
        ended = time.monotonic() + 1.5 * TICKET_S
        wait_until(lambda: time.monotonic() > ended or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        factor.write_text("1")
        wait_until(lambda: rate(quotas) == 4_000_000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0


def rate(quotas: ClusterQuotas) -> float:
    return quotas.rate(ALICE) or 0.0


def test_streams_outlive_their_tickets(
    kdc: Kdc, topics: Topics, topic: str, reader: Path, tmp_path: Path
) -> None:
    """Driver and executors log in alike: by key tab, and by a cache that something renews. An
    executor without a ticket is told so."""
    cache = tmp_path / "cache"
    kdc.kinit("reader", reader, cache)
    jaas = {
        "key tab": by_key_tab(reader, "reader"),
        "cache": by_cache(cache),
        "no cache there": by_cache(),
    }
    streams = {
        name: for_spark(login_options(topics, "GSSAPI", each)) | SLOWLY | {"subscribe": topic}
        for name, each in jaas.items()
    }
    before = kdc.logins("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{cache}")
        with repeated(lambda: kdc.kinit("reader", reader, cache), TICKET_S / 4):
            absent = {"KRB5CCNAME": f"FILE:{tmp_path}/absent"}
            results = run_streams(tmp_path, streams, absent)
    for name in ("key tab", "cache"):
        assert results[name]["failure"] == ""
        assert results[name]["values"] == [f"{n:05d}" for n in range(COUNT)]
    assert kdc.logins("reader") - before >= 4
    failure = results["no cache there"]["failure"]
    assert "[NO_KERBEROS_TICKET]" in failure
    assert "the default ticket cache holds no ticket where this process runs" in failure
