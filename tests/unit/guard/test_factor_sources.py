"""Where the throttle factor is from."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from keyrange.errors import InvalidError, KeyrangeError, error
from keyrange.guard import entry_points, log_dirs
from keyrange.guard.factor_sources import (
    ClusterVolumes,
    Figures,
    SaidFactor,
    StaticFactor,
    check_timeout_ms,
    file_factor,
    open_factor_source,
    topic_factor,
)
from keyrange.guard.factor_topic import LastRecord
from keyrange.guard.model import volume_readings
from keyrange.guard.model.throttle_factor import Factor, ThrottleState
from keyrange.guard.model.volume_readings import LogDirs, VolumeReading
from keyrange.model.volumes import Limit, Policy, Volume
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.volume_checks import VolumeOptions, parse_volume_options

SERVERS = {"kafka.admin.bootstrap.servers": "h:1"}
VALIDITY_MS = 120_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def value(source: Any, clock: Clock) -> float:
    found: float = source.figures(clock()).factor.value
    return found


def said_in(path: Path, fallback: float) -> VolumeOptions:
    return VolumeOptions(factor_file=str(path), fallback=fallback, validity_ms=VALIDITY_MS)


def test_a_static_factor_is_what_it_is() -> None:
    clock = Clock()
    source = StaticFactor(0.25, now_ms=clock)
    source.check()
    clock.now_ms += 10**9
    factor = source.figures(clock()).factor
    assert (factor.value, factor.is_fallback, factor.since_ms) == (0.25, False, 1_000)


def test_a_file_says_the_factor(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "factor"
    source = file_factor(said_in(path, 0.75), clock)
    factor = source.figures(clock()).factor
    assert (factor.value, factor.is_fallback, factor.standing) == (
        0.75,
        True,
        ThrottleState.UNKNOWN,
    )
    for text, expected in (("0", 0.0), (" 0.5\n", 0.5), ("1.0", 1.0)):
        path.write_text(text)
        source.check()
        assert value(source, clock) == expected
    factor = source.figures(clock()).factor
    assert (factor.why, factor.is_fallback) == (f"{path} says 1", False)


class SaidTopic:
    """A topic whose last record a test sets."""

    name = "decided"

    def __init__(self) -> None:
        self.record: tuple[int, bytes] | KeyrangeError = (7, b" 0.5\n")
        self.written_ms = -1
        self.is_closed = False

    def last(self) -> LastRecord:
        if isinstance(self.record, KeyrangeError):
            raise self.record
        return LastRecord(*self.record, self.written_ms)

    def close(self) -> None:
        self.is_closed = True


def test_a_topic_says_the_factor_for_as_long_as_somebody_says_it_anew() -> None:
    clock, topic = Clock(), SaidTopic()
    source = topic_factor(topic, said_in(Path(), 0.0), clock)  # type: ignore[arg-type]
    assert source.figures(clock()).factor.is_fallback
    source.check()
    factor = source.figures(clock()).factor
    assert (factor.value, factor.why) == (0.5, "topic decided says 0.5")
    clock.now_ms += VALIDITY_MS
    source.check()
    assert value(source, clock) == 0.5
    # The same number in a newer record.
    topic.record = (8, b"0.5")
    source.check()
    clock.now_ms += VALIDITY_MS
    source.check()
    assert value(source, clock) == 0.5
    clock.now_ms += 1
    source.check()
    factor = source.figures(clock()).factor
    assert (factor.value, factor.is_fallback) == (0.0, True)
    assert "topic decided said nothing for long: nothing new was said" in factor.why
    topic.record = (9, b"1")
    source.check()
    assert value(source, clock) == 1.0
    assert source.figures(clock()).fallback_applied == 1
    source.close()
    assert topic.is_closed


def test_the_last_word_of_a_dead_process_is_not_new_to_a_run_that_begins() -> None:
    """Runs that are shorter than the validity would go by it for ever."""
    for age_ms, expected in ((VALIDITY_MS + 1, 1.0), (VALIDITY_MS, 0.0), (-5_000, 0.0)):
        clock, topic = Clock(), SaidTopic()
        topic.record, topic.written_ms = (7, b"0"), 1_000_000
        wall_ms = 1_000_000 + age_ms
        options = said_in(Path(), 1.0)
        source = topic_factor(topic, options, clock, lambda at=wall_ms: at)  # type: ignore
        source.check()
        assert value(source, clock) == expected
    # It is valid for what was left of its time.
    clock.now_ms += VALIDITY_MS + 1
    assert value(source, clock) == 1.0
    # A record that is new since is valid, however far the clocks are apart.
    topic.record, topic.written_ms = (8, b"0"), 1
    source.check()
    assert value(source, clock) == 0.0


def test_why_the_first_record_does_not_count_is_said() -> None:
    clock, topic = Clock(), SaidTopic()
    topic.written_ms = 1
    options = said_in(Path(), 1.0)
    source = topic_factor(topic, options, clock, lambda: 10**12)  # type: ignore[arg-type]
    source.check()
    factor = source.figures(clock()).factor
    assert factor.is_fallback
    assert factor.why.endswith("said nothing for long: what it says last is older than that")


def test_what_a_topic_says_that_is_no_factor_fails_the_check() -> None:
    clock, topic = Clock(), SaidTopic()
    source = topic_factor(topic, said_in(Path(), 1.0), clock)  # type: ignore[arg-type]
    for said in (b"", b"2", b"half", b"nan", b"\xff" * 10_000):
        topic.record = (7, said)
        with pytest.raises(KeyrangeError, match="decided-0 at offset 7 holds no number"):
            source.check()
    topic.record = error("BROKER_UNREACHABLE", "nobody answers")
    with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
        source.check()
    clock.now_ms += VALIDITY_MS + 1
    assert "nobody answers" in source.figures(clock()).factor.why


def test_a_file_that_was_never_read_is_the_fallback_counted_once(tmp_path: Path) -> None:
    clock = Clock()
    source = file_factor(said_in(tmp_path / "none", 0.0), clock)
    for _ in range(3):
        clock.now_ms += VALIDITY_MS
        with pytest.raises(KeyrangeError, match="THROTTLE_FACTOR_UNREADABLE"):
            source.check()
        assert value(source, clock) == 0.0
    figures = source.figures(clock())
    assert (figures.fallback_applied, figures.factor.standing) == (1, ThrottleState.FALLBACK)


@pytest.mark.parametrize("text", ["", "half", "-0.1", "1.01", "nan", "inf", "0.5 0.6"])
def test_what_is_no_factor_is_a_failed_check(tmp_path: Path, text: str) -> None:
    path = tmp_path / "factor"
    path.write_text(text)
    source = file_factor(said_in(path, 1.0))
    with pytest.raises(KeyrangeError, match=r"THROTTLE_FACTOR_UNREADABLE.*no number from 0 to 1"):
        source.check()


def test_a_file_that_is_gone_holds_for_the_validity_and_then_falls_back(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "factor"
    path.write_text("1")
    source = file_factor(said_in(path, 0.0), clock)
    source.check()
    path.unlink()
    clock.now_ms += VALIDITY_MS
    with pytest.raises(KeyrangeError, match="THROTTLE_FACTOR_UNREADABLE"):
        source.check()
    assert value(source, clock) == 1.0
    clock.now_ms += 1
    figures = source.figures(clock())
    assert (figures.factor.value, figures.factor.is_fallback) == (0.0, True)
    assert (figures.fallback_applied, figures.factor.since_ms) == (1, clock())
    clock.now_ms += 5
    assert source.figures(clock()) == figures
    path.write_text("1")
    source.check()
    assert (value(source, clock), source.figures(clock()).fallback_applied) == (1.0, 1)


class ScriptedReader:
    """Stands for a reader of log dirs."""

    def __init__(self, _: Any) -> None:
        self.answers: list[Any] = []
        self.timeouts: list[float] = []
        self.closed = False

    def read(self, timeout_ms: float) -> VolumeReading:
        self.timeouts.append(timeout_ms)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return VolumeReading(frozenset((1,)), (LogDirs(1, (Volume(1, "/d", 100, answer),)),))

    def close(self) -> None:
        self.closed = True


def test_the_volumes_of_a_cluster_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "LogDirReader", ScriptedReader)
    clock = Clock()
    policy = Policy(Limit(min_available_bytes=10), 0.0, VALIDITY_MS, 60_000)
    source = ClusterVolumes(ClientSettings(), policy, clock)
    reader: Any = source._reader
    reader.answers = [50, 10, error("BROKER_UNREACHABLE", "no broker answered")]
    source.check()
    assert value(source, clock) == 1.0
    clock.now_ms += 60_000
    source.check()
    figures = source.figures(clock())
    assert (figures.factor.value, figures.active_brokers, figures.active_log_dirs) == (0.0, 1, 1)
    assert (figures.volumes, figures.limit_violated) == ((Volume(1, "/d", 100, 10),), 1)
    with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
        source.check()
    assert "no broker answered" in source.figures(clock()).factor.why
    assert reader.timeouts == [30_000] * 3
    source.close()
    assert reader.closed


def test_a_check_pauses_while_it_goes_through_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    monkeypatch.setattr(log_dirs, "LogDirReader", ScriptedReader)
    monkeypatch.setattr(log_dirs, "yield_gil", lambda: pauses.append(0))
    monkeypatch.setattr(volume_readings, "_AT_ONCE", 1)
    source = ClusterVolumes(ClientSettings(), Policy(Limit(min_available_bytes=10)), Clock())
    reader: Any = source._reader
    reader.answers = [50]
    source.check()
    assert len(pauses) == 5


def test_a_check_is_never_given_no_time() -> None:
    assert [check_timeout_ms(each) for each in (0, 1_000, 10_000, 3_600_000)] == [
        5_000,
        5_000,
        10_000,
        30_000,
    ]


def test_sources_are_named_by_an_option(tmp_path: Path) -> None:
    given = SERVERS | {"throttle.factor.source": "static", "throttle.factor": "0.5"}
    made = open_factor_source(parse_volume_options(given))
    assert isinstance(made, StaticFactor)
    given = SERVERS | {"throttle.factor.source": "file", "throttle.factor.file": str(tmp_path)}
    made = open_factor_source(parse_volume_options(given))
    assert isinstance(made, SaidFactor)
    assert made._what == str(tmp_path)
    given = SERVERS | {"throttle.factor.source": "topic", "throttle.factor.topic": "decided"}
    made = open_factor_source(parse_volume_options(given))
    assert isinstance(made, SaidFactor)
    assert made._what == "topic decided"
    given = SERVERS | {"min.available.bytes": "1g"}
    assert isinstance(open_factor_source(parse_volume_options(given)), ClusterVolumes)


def test_where_nothing_is_checked_nothing_is_held() -> None:
    given = SERVERS | {"min.available.ratio": "1.0", "storage.check.interval": "PT0S"}
    factor = open_factor_source(parse_volume_options(given)).figures(0).factor
    assert (factor.value, factor.why) == (
        1.0,
        "storage.check.interval is PT0S: nothing is checked",
    )


class OfOthers:
    def __init__(self, options: VolumeOptions) -> None:
        self.options = options

    def check(self) -> None: ...

    def figures(self, now_ms: int) -> Figures:
        return Figures(Factor(0.75, "others say so", now_ms, False, (), None))

    def close(self) -> None: ...


def test_others_bring_sources_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(group: str) -> list[EntryPoint]:
        assert group == "keyrange.throttle_factor_sources"
        return [EntryPoint("theirs", f"{__name__}:OfOthers", group)]

    monkeypatch.setattr(entry_points, "entry_points", named)
    monkeypatch.setattr(EntryPoint, "load", lambda self: OfOthers)
    given = SERVERS | {"throttle.factor.source": "theirs"}
    made = open_factor_source(parse_volume_options(given))
    assert made.figures(7).factor.value == 0.75
    given = SERVERS | {"throttle.factor.source": "nobodys"}
    with pytest.raises(InvalidError, match="one of cluster-volumes, file, static, theirs"):
        open_factor_source(parse_volume_options(given))
