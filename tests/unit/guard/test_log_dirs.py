"""What brokers say of their volumes, by scripted brokers on real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from brokers.scripted_admin import GB, HOST, ScriptedBrokers, Told, scripted_brokers
from keyrange.errors import KeyrangeError
from keyrange.guard import log_dirs
from keyrange.guard.log_dirs import TIMED_OUT, LogDirReader
from keyrange.guard.model.volume_readings import LogDirs, VolumeReading
from keyrange.model.volumes import Volume
from keyrange.options.kafka_properties import ClientSettings

DENIED, OFFLINE = 31, 56
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with scripted_brokers(3) as started:
        yield started


@pytest.fixture
def reader(brokers: ScriptedBrokers) -> Iterator[LogDirReader]:
    made = LogDirReader(ClientSettings(bootstrap_servers=brokers.servers, **QUICK))
    yield made
    made.close()


def failures(reading: VolumeReading) -> dict[int, str]:
    return {answer.broker: answer.failure for answer in reading.answers if answer.failure}


def volumes(reading: VolumeReading) -> list[Volume]:
    return [volume for answer in reading.answers for volume in answer.volumes]


def test_every_directory_of_every_broker_is_told(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    brokers.told[2] = Told((("/a", 10 * GB, GB, 0), ("/b", 20 * GB, 0, 0)))
    reading = reader.read(20_000)
    assert reading.brokers == {1, 2, 3}
    assert volumes(reading) == [
        Volume(1, "/data", 100 * GB, 50 * GB),
        Volume(2, "/a", 10 * GB, GB),
        Volume(2, "/b", 20 * GB, 0),
        Volume(3, "/data", 100 * GB, 50 * GB),
    ]
    assert reading.failure == ""


@pytest.mark.parametrize(
    ("told", "failure"),
    [
        (
            Told((), error_code=DENIED),
            "CLUSTER_AUTHORIZATION_FAILED: the principal needs DESCRIBE on the cluster",
        ),
        (Told(()), "no log dirs"),
        (Told((("/a", -1, -1, OFFLINE),)), "KAFKA_STORAGE_ERROR /a"),
        (Told((("/a", -1, -1, 0),)), "size not told /a"),
        (Told((("/a", GB, -1, 0),)), "size not told /a"),
        (Told((("/a", 0, 0, 0),)), "size not told /a"),
    ],
)
def test_what_is_not_told_is_no_room(
    brokers: ScriptedBrokers, reader: LogDirReader, told: Told, failure: str
) -> None:
    brokers.told[2] = told
    reading = reader.read(20_000)
    assert failures(reading) == {2: failure}
    assert reading.failure
    assert {volume.broker for volume in volumes(reading)} == {1, 3}


def test_the_directories_beside_an_offline_one_are_told(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    brokers.told[1] = Told((("/a", -1, -1, OFFLINE), ("/b", GB, 7, 0)))
    [answer, *_] = reader.read(20_000).answers
    assert answer == LogDirs(1, (Volume(1, "/b", GB, 7),), "KAFKA_STORAGE_ERROR /a")


def test_a_broker_that_cannot_tell_sizes_is_not_observed(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    brokers.versions = (1, 3)
    found = failures(reader.read(20_000))
    assert found.keys() == {1, 2, 3}
    assert found[1].startswith("UNSUPPORTED_BROKER: the broker speaks versions 1 to 3 of")


def test_a_silent_broker_costs_the_others_nothing(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    brokers.told[1] = Told(after_s=30)
    # Its answer would come in 30 s.
    reading = reader.read(1_500)
    assert failures(reading) == {1: TIMED_OUT}
    assert {volume.broker for volume in volumes(reading)} == {2, 3}


@pytest.mark.ordinary
def test_half_an_answer_costs_the_others_nothing(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    """Over connections that are open, and over one that is made for it."""
    reader.read(20_000)
    brokers.told[1] = Told(half=True)
    for _ in range(2):
        reading = reader.read(3_000)
        assert failures(reading) == {1: TIMED_OUT}
        assert {volume.broker for volume in volumes(reading)} == {2, 3}
    brokers.told[1] = Told()
    assert reader.read(20_000).failure == ""


@pytest.mark.ordinary
def test_open_connections_are_asked_at_once(brokers: ScriptedBrokers, reader: LogDirReader) -> None:
    reader.read(20_000)
    made = brokers.connections
    for node in (1, 2, 3):
        brokers.told[node] = Told(after_s=5)
    assert reader.read(10_000).failure == ""
    assert brokers.connections == made


def test_who_is_asked_over_open_connections_is_asked_with_pauses(
    brokers: ScriptedBrokers, reader: LogDirReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind each question and each answer."""
    pauses: list[int] = []
    monkeypatch.setattr(log_dirs, "yield_gil", lambda: pauses.append(0))
    reader.read(20_000)
    assert pauses == []
    reader.read(20_000)
    assert len(pauses) == 2 * 3


@pytest.mark.ordinary
def test_all_brokers_are_asked_at_once(brokers: ScriptedBrokers, reader: LogDirReader) -> None:
    """Three that take most of the deadline each answer within it only together."""
    for node in (1, 2, 3):
        brokers.told[node] = Told(after_s=5)
    reading = reader.read(14_000)
    assert reading.failure == ""


def test_connections_are_kept_and_made_again(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    reader.read(20_000)
    made = brokers.connections
    reader.read(20_000)
    assert brokers.connections == made
    brokers.told[3] = Told(cut=True)
    assert failures(reader.read(20_000))[3].startswith("connection lost")
    brokers.told[3] = Told()
    assert reader.read(20_000).failure == ""


def test_a_kept_connection_that_the_broker_has_closed_is_no_failure(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    reader.read(20_000)
    for connection in reader._connections.values():
        assert connection._sock is not None
        connection._sock.shutdown(socket.SHUT_RDWR)
    assert reader.read(20_000).failure == ""


def lists_from_then_on(brokers: ScriptedBrokers, listed: list[int]) -> None:
    """From the second description of the cluster on."""
    described = 0

    def describe() -> None:
        nonlocal described
        described += 1
        if described > 1:
            brokers.listed = listed

    brokers.on_metadata = describe


def test_a_broker_that_has_left_is_not_missed(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    """It goes between the description of the cluster and its own answer."""
    brokers.told[2] = Told(cut=True)
    lists_from_then_on(brokers, [1, 3])
    reading = reader.read(20_000)
    assert (reading.brokers, reading.failure) == (frozenset((1, 3)), "")
    assert [brokers.times(node) for node in (1, 2, 3)] == [1, 1, 1]


def test_the_connection_to_a_broker_that_has_left_is_closed(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    """One that comes back at another address, as a pod does, would leave one each time."""
    reader.read(20_000)
    left = next(each for broker, each in reader._connections.items() if broker.node_id == 2)
    brokers.listed = [1, 3]
    reader.read(20_000)
    assert {broker.node_id for broker in reader._connections} == {1, 3}
    assert not left.usable


def test_a_broker_that_comes_meanwhile_is_asked_too(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    brokers.listed = [1, 2]
    brokers.told[2] = Told(cut=True)
    lists_from_then_on(brokers, [1, 3])
    reading = reader.read(20_000)
    assert (reading.brokers, reading.failure) == (frozenset((1, 3)), "")


def test_a_broker_that_stays_silent_is_asked_once_where_nothing_changed(
    brokers: ScriptedBrokers, reader: LogDirReader
) -> None:
    brokers.told[2] = Told(error_code=DENIED, directories=())
    reader.read(20_000)
    assert brokers.times(2) == 1


def test_an_address_where_nobody_answers_is_named() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    reader = LogDirReader(ClientSettings(bootstrap_servers=((HOST, port),), **QUICK))
    with pytest.raises(KeyrangeError, match=f"BROKER_UNREACHABLE.*{port}"):
        reader.read(300)
