"""What the volume guard lets a query take in, against a scripted cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.guard.factor_sources import Figures
from keyrange.guard.model.throttle_factor import Factor
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.retention_deadline import Retention
from keyrange.model.checkpoint import RESERVED
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.source import guard_admission as guard_hold_module
from keyrange.source.guard_admission import Admission
from keyrange.source.planning_session import PlanningSession
from queries.scripted import EARLIEST_START, GIVEN, T0, FixedSizes, ScriptedCluster
from queries.scripted_query import Clock, Query, ranges_of
from tables.committing import rejected

GUARD = {
    "guard.admission": "true",
    "kafka.admin.bootstrap.servers": "h:1",
    "min.available.ratio": "0.1",
}
DAY_MS = 86_400_000


class ScriptedWatch:
    """Says what a test wants it to say."""

    def __init__(self) -> None:
        self.value, self.why = 0.0, "broker 1 /d has 5 of 100 bytes available"
        self.failure: KeyrangeError | None = None
        self.users = 0

    @property
    def factor(self) -> Factor:
        return Factor(self.value, self.why, 0, False, (), None)

    @property
    def figures(self) -> Figures:
        return Figures(self.factor, (), 3, 6, 4, 2)

    def first(self) -> Factor:
        if self.failure is not None:
            raise self.failure
        return self.factor


class GuardedCluster(ScriptedCluster):
    """Also says which is the first record that stays for now."""

    young = 0

    def list_offsets(
        self,
        view: ClusterView,
        wanted: Mapping[TopicPartition, int],
        level: int | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, tuple[int, int]]:
        found = super().list_offsets(view, wanted)
        timed = {p: (self.young, 0) for p, at in wanted.items() if at >= 0}
        return found | timed


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> ScriptedWatch:
    made = ScriptedWatch()

    def take(_: Any) -> ScriptedWatch:
        made.users += 1
        return made

    def leave(_: Any) -> None:
        made.users -= 1

    monkeypatch.setattr(guard_hold_module, "take_watch", take)
    monkeypatch.setattr(guard_hold_module, "leave_watch", leave)
    monkeypatch.setattr(guard_hold_module, "RecordSizes", NewestSizes)
    return made


class NewestSizes(FixedSizes):
    """What the newest records take, and which were asked for."""

    size = 100.0

    def __init__(self, _: Any) -> None:
        NewestSizes.asked: dict[TopicPartition, OffsetRange] = {}

    def of(
        self, view: ClusterView, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, float]:
        NewestSizes.asked |= ranges
        return dict.fromkeys(ranges, self.size)


class Kept:
    """What topics keep, and how often that was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **topics: Retention) -> None:
        self.topics, self.asked, self.unknown = topics, 0, ""
        monkeypatch.setattr(guard_hold_module, "retentions", self)

    def __call__(self, cluster: Any, topics: Any, timeout_ms: float) -> Any:
        self.asked += 1
        return {name: self.topics[name] for name in topics if name in self.topics}, self.unknown


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch, t=Retention())


def session(cluster: ScriptedCluster, **given: str) -> PlanningSession:
    parsed = parse_options({**GIVEN, **GUARD, **EARLIEST_START, **given}, "stream")
    made: Any = cluster
    sizes: Any = FixedSizes()
    admission = Admission(parsed, made)
    admission.begin()
    return PlanningSession(parsed, made, sizes, admission=admission)


def begun(run: PlanningSession) -> dict[str, Any]:
    """The end of the first batch: it writes down where the query starts."""
    return run.latest(run.initial().to_json(), limited=True)


def test_with_factor_0_nothing_new_is_taken_in(watch: ScriptedWatch, kept: Kept) -> None:
    cluster = GuardedCluster(100)
    run = session(cluster)
    end = begun(run)
    assert end["t"] == {"0": 0}
    assert run.latest(end, limited=True) is end
    assert run.latest(end, limited=False) is end
    watch.value = 1.0
    assert run.latest(end, limited=True)["t"] == {"0": 100}


def test_a_run_with_available_now_ends_with_what_it_has(watch: ScriptedWatch, kept: Kept) -> None:
    watch.value = 1.0
    cluster = GuardedCluster(100)
    run = session(cluster, maxOffsetsPerTrigger="40")
    run.fix_target()
    end = begun(run)
    assert end["t"] == {"0": 40}
    watch.value = 0.0
    assert run.latest(end, limited=True) is end


def test_a_query_that_is_held_for_long_says_so_each_hour(
    watch: ScriptedWatch,
    kept: Kept,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No batch comes that would: a volume may never recover."""
    at_ms = [0]
    monkeypatch.setattr(guard_hold_module, "monotonic_ms", lambda: at_ms[0])
    run = session(GuardedCluster(100))
    end = begun(run)
    for _ in range(130):
        at_ms[0] += 60_000
        run.latest(end, limited=True)
    said = [each.message for each in caplog.records if "nothing new for" in each.message]
    assert said == [
        f"the query has taken in nothing new for {hours} h 0 min: {watch.why}" for hours in (1, 2)
    ]


def test_it_says_why_once_and_in_the_progress(
    watch: ScriptedWatch, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    run = session(GuardedCluster(100))
    end = begun(run)
    for _ in range(3):
        run.latest(end, limited=True)
    said = [record.message for record in caplog.records if "takes in nothing new" in record.message]
    assert said == ["the query takes in nothing new: broker 1 /d has 5 of 100 bytes available"]
    known = run.known_latest()
    assert known is not None
    metrics = known[RESERVED]["metrics"]["volumes"]
    assert (metrics["throttleFactor"], metrics["why"]) == (0.0, watch.why)
    assert (metrics["partitionsHeld"], metrics["timeToFullMs"]) == (1, -1)
    assert (metrics["activeBrokers"], metrics["activeLogDirs"]) == (3, 6)
    assert (metrics["limitViolated"], metrics["fallbackApplied"]) == (4, 2)
    watch.value = 1.0
    run.latest(end, limited=True)
    assert sum("takes in new records again" in each.message for each in caplog.records) == 1
    known = run.known_latest()
    assert known is not None
    assert known[RESERVED]["metrics"]["volumes"]["partitionsHeld"] == 0


def test_what_retention_is_about_to_delete_is_read(
    watch: ScriptedWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kept(monkeypatch, t=Retention(ms=DAY_MS))
    cluster = GuardedCluster(100)
    run = session(cluster)
    end = begun(run)
    assert end["t"] == {"0": 0}
    cluster.young = 30
    run._admission._young_until_ms = 0  # type: ignore[union-attr]  # as if time had passed
    end = run.latest(end, limited=True)
    assert end["t"] == {"0": 30}
    cluster.young = -1
    run._admission._young_until_ms = 0  # type: ignore[union-attr]
    assert run.latest(end, limited=True)["t"] == {"0": 100}


def test_limits_hold_for_that_too(watch: ScriptedWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept(monkeypatch, t=Retention(ms=DAY_MS))
    cluster = GuardedCluster(100)
    cluster.young = 50
    assert begun(session(cluster, maxOffsetsPerTrigger="20"))["t"] == {"0": 20}


def test_so_is_what_the_size_of_the_log_leaves_no_room_for(
    watch: ScriptedWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 bytes an offset, of which half of 10,000 bytes may wait."""
    Kept(monkeypatch, t=Retention(bytes=10_000))
    assert begun(session(GuardedCluster(80)))["t"] == {"0": 30}


def test_newer_records_that_are_larger_leave_less_room(
    watch: ScriptedWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is held the query sees the same old records again and again."""
    Kept(monkeypatch, t=Retention(bytes=1_000_000))
    monkeypatch.setattr(NewestSizes, "size", 400.0)
    assert begun(session(GuardedCluster(4_000)))["t"] == {"0": 4_000 - 1_250}
    assert NewestSizes.asked == {T0: OffsetRange(3_000, 4_000)}


def test_what_is_about_to_be_deleted_does_not_wait_for_more(
    watch: ScriptedWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kept(monkeypatch, t=Retention(ms=DAY_MS))
    cluster = GuardedCluster(100)
    run = session(cluster, minOffsetsPerTrigger="1000")
    end = begun(run)
    cluster.young = 30
    run._admission._young_until_ms = 0  # type: ignore[union-attr]  # as if time had passed
    assert run.latest(end, limited=True)["t"] == {"0": 30}


def test_a_topic_whose_retention_is_not_known_is_not_held(
    watch: ScriptedWatch, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.topics, kept.unknown = {}, "t: TOPIC_AUTHORIZATION_FAILED"
    run = session(GuardedCluster(100))
    end = begun(run)
    assert end["t"] == {"0": 100}
    assert run.latest(end, limited=True) is end
    said = [each.message for each in caplog.records if "DESCRIBE_CONFIGS" in each.message]
    assert len(said) == 1
    assert kept.unknown in said[0]
    assert kept.asked == 1


def test_a_factor_between_takes_its_part_of_the_limits(watch: ScriptedWatch, kept: Kept) -> None:
    watch.value = 0.5
    cluster = GuardedCluster(100)
    assert begun(session(cluster, maxOffsetsPerTrigger="40"))["t"] == {"0": 20}
    assert begun(session(cluster, maxBytesPerTrigger="4000"))["t"] == {"0": 20}
    assert begun(session(cluster))["t"] == {"0": 100}


def test_what_asking_costs_is_paid_once(watch: ScriptedWatch, kept: Kept) -> None:
    cluster = GuardedCluster(100)
    run = session(cluster)
    end = begun(run)
    for _ in range(5):
        run.latest(end, limited=True)
    assert kept.asked == 1


def test_a_first_look_that_fails_fails_the_query(watch: ScriptedWatch) -> None:
    watch.failure = error("BROKER_UNREACHABLE", "no broker answered")
    with pytest.raises(KeyrangeError, match="no broker answered"):
        session(GuardedCluster(100))
    assert watch.users == 0


def test_the_watch_is_left_when_the_run_ends(watch: ScriptedWatch, kept: Kept) -> None:
    run = session(GuardedCluster(100))
    assert watch.users == 1
    run.close()
    assert watch.users == 0


def test_redeliveries_go_on(
    watch: ScriptedWatch, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    watch.value = 1.0
    query = Query(GuardedCluster(10), **GUARD)
    cluster: Any = query.cluster
    guard = query.run._admission = Admission(query.options, cluster)
    guard.begin()
    query.batch({T0: rejected((3, 4))})
    watch.value = 0.0
    query.cluster.latest = 20
    assert query.is_idle()
    clock.now_s += 11
    [split] = query.batch()
    assert split.delivery is not None
    assert (split.delivery.offsets, query.offset["t"]) == ((3,), {"0": 10})
    watch.value = 1.0
    assert ranges_of(query.batch()) == [(10, 20)]
