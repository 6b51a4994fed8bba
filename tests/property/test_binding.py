"""Late binding against any order in which tasks run, are retried, doubled and lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.members.model.late_binding import (
    NO_SLOT,
    Binding,
    Give,
    NoMoreWork,
    PinRule,
    Refuse,
    Wait,
    WorkUnitCounts,
    count_tasks,
)

SLOTS = ("a", "b", "c")
RULES = (PinRule(strict=False, wait_ms=300), PinRule(strict=True, wait_ms=300))


class Run:
    """Some cores of some slots run the tasks of one plan, as Spark would: what fails is tried
    again, elsewhere perhaps, and now and then twice at once."""

    def __init__(self, seed: int, binding: Binding, tasks: int, cores: list[str]) -> None:
        self.random = random.Random(seed)
        self.binding = binding
        self.cores = cores
        self.waiting = list(range(tasks))
        self.attempts: dict[int, tuple[int, int]] = {}
        self.read: dict[int, list[int]] = {number: [] for number in range(tasks)}
        self.done: set[int] = set()
        self.now_ms = 0
        self.refused = 0

    def drain(self) -> None:
        while self.waiting or self.attempts:
            assert self.now_ms < 1_000_000, "no end in sight"
            self.now_ms += self.random.choice((0, 10, 100))
            core = self.random.randrange(len(self.cores))
            if core not in self.attempts:
                if self.waiting:
                    at = self.random.randrange(len(self.waiting))
                    self.attempts[core] = (self.waiting.pop(at), 0)
                continue
            number, position = self.attempts[core]
            if self.random.random() < 0.05:
                self.lose(core, number)
            else:
                self.step(core, number, position)

    def lose(self, core: int, number: int) -> None:
        """The attempt is gone; or another one starts beside it."""
        if self.random.random() < 0.5:
            del self.attempts[core]
        if number not in self.waiting:
            self.waiting.append(number)

    def step(self, core: int, number: int, position: int) -> None:
        answer = self.binding.ask(number, position, self.cores[core], self.now_ms)
        if isinstance(answer, Give):
            before = self.read[number]
            assert before[position : position + 1] in ([], [answer.portion])
            if position == len(before):
                before.append(answer.portion)
            self.attempts[core] = (number, position + 1)
        elif isinstance(answer, NoMoreWork):
            assert position == len(self.read[number])
            self.done.add(number)
            del self.attempts[core]
        elif isinstance(answer, Refuse):
            self.refused += 1
            del self.attempts[core]
            self.waiting.append(number)
        else:
            assert isinstance(answer, Wait)


@given(
    portions=st.lists(st.sampled_from(SLOTS), max_size=20),
    present=st.sets(st.sampled_from(SLOTS)),
    cores=st.lists(st.sampled_from((*SLOTS, NO_SLOT)), min_size=1, max_size=6),
    tasks=st.integers(1, 8),
    rule=st.sampled_from(RULES),
    seed=st.integers(0, 2**32),
    awaited=st.sets(st.sampled_from(SLOTS)),
    standbys=st.dictionaries(st.sampled_from(SLOTS), st.sets(st.sampled_from(SLOTS))),
)
def test_every_portion_is_read_by_one_task_once(
    portions: list[str],
    present: set[str],
    cores: list[str],
    tasks: int,
    rule: PinRule,
    seed: int,
    awaited: set[str],
    standbys: dict[str, set[str]],
) -> None:
    # A slot that is there and runs nothing would be refused for ever under `strict`, unless it is
    # only awaited.
    present = (present & set(cores)) | awaited
    binding = Binding(portions, present, tasks, rule, awaited, standbys=standbys)
    run = Run(seed, binding, tasks, cores)

    run.drain()

    read = Counter(portion for each in run.read.values() for portion in each)
    assert read == Counter(range(len(portions)))
    assert binding.left == 0


def test_an_awaited_slot_has_as_long_as_pin_wait_ms_to_come() -> None:
    """Also where there is no other task that could come for it, and whatever the rule."""
    for strict in (False, True):
        rule = PinRule(strict=strict, wait_ms=100, pause_ms=7)
        binding = Binding(["a", "b"], {"a", "b"}, 1, rule, {"a", "b"})
        assert binding.ask(0, 0, NO_SLOT, 0) == Wait(7)
        assert binding.ask(0, 0, "a", 50) == Give(0)
        assert binding.ask(0, 1, "a", 60) == Wait(7)
        assert binding.ask(0, 1, "a", 159) == Wait(7)
        assert binding.ask(0, 1, "a", 160) == Give(1)
        assert binding.ask(0, 2, "a", 161) == NoMoreWork()


def test_a_standby_waits_a_tenth_of_pin_wait_ms_for_a_slot_that_does_not_come() -> None:
    rule, standbys = PinRule(wait_ms=1_000, pause_ms=7), {"b": {"a"}}
    binding = Binding(["a", "b"], SLOTS, 2, rule, standbys=standbys)
    assert binding.ask(0, 0, "a", 0) == Give(0)
    assert isinstance(binding.ask(0, 1, "a", 10), Wait)
    assert isinstance(binding.ask(0, 1, "a", 109), Wait)
    assert binding.ask(0, 1, "a", 110) == Give(1)
    assert binding.counts() == WorkUnitCounts(own=1, foreign=0, unowned=0, standby=1)


@pytest.mark.parametrize(("has_come", "standbys"), [(True, {"b": {"a"}}), (False, {"a": {"b"}})])
def test_for_one_that_has_come_and_by_others_it_is_waited_as_long_as_ever(
    has_come: bool, standbys: dict[str, set[str]]
) -> None:
    binding = Binding(["a", "b", "b"], SLOTS, 2, PinRule(wait_ms=1_000), standbys=standbys)
    if has_come:
        assert binding.ask(1, 0, "b", 0) == Give(1)
    assert binding.ask(0, 0, "a", 0) == Give(0)
    assert isinstance(binding.ask(0, 1, "a", 0), Wait)
    assert isinstance(binding.ask(0, 1, "a", 999), Wait)
    assert isinstance(binding.ask(0, 1, "a", 1_000), Give)


@given(
    portions=st.lists(st.sampled_from(SLOTS), min_size=1, max_size=20),
    tasks=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_strict_reads_nothing_elsewhere(portions: list[str], tasks: int, seed: int) -> None:
    binding = Binding(portions, SLOTS, tasks, PinRule(strict=True, wait_ms=100))
    run = Run(seed, binding, tasks, [*SLOTS, *SLOTS])

    run.drain()

    assert binding.counts().foreign == 0
    assert binding.counts().own == len(portions)


def test_own_portions_first_then_those_of_nobody_then_after_a_while_others() -> None:
    binding = Binding(["a", "gone", "b", "b"], {"a", "b"}, 2, PinRule(wait_ms=100, pause_ms=7))

    assert binding.ask(0, 0, "a", 0) == Give(0)
    assert binding.ask(0, 1, "a", 0) == Give(1)
    assert binding.ask(0, 2, "a", 50) == Wait(7)
    assert binding.ask(0, 2, "a", 149) == Wait(7)
    assert binding.ask(0, 2, "a", 150) == Give(2)
    assert binding.ask(1, 0, "b", 160) == Give(3)
    assert binding.ask(1, 1, "b", 160) == NoMoreWork()
    assert binding.counts() == WorkUnitCounts(own=2, foreign=1, unowned=1)


def test_the_last_task_is_refused_what_others_are_there_for() -> None:
    binding = Binding(["b"], {"a", "b"}, 2, PinRule(strict=True, wait_ms=100))

    assert binding.ask(0, 0, "a", 0) == NoMoreWork()
    assert isinstance(binding.ask(1, 0, "a", 0), Wait)
    assert binding.ask(1, 0, "a", 100) == Refuse(("b",))
    # Another attempt, in the right place.
    assert binding.ask(1, 0, "b", 101) == Give(0)
    assert binding.ask(1, 0, "a", 102) == Give(0)


def test_what_ended_stays_ended() -> None:
    binding = Binding(["a"], {"a"}, 2, PinRule())

    assert binding.ask(0, 0, "a", 0) == Give(0)
    assert binding.ask(1, 0, "a", 0) == NoMoreWork()
    assert binding.ask(1, 0, "b", 9_000) == NoMoreWork()


def test_strict_waits_for_an_executor_that_is_about_to_get_its_slot() -> None:
    """Else it would be let go, and what is its own be refused by the one task that is left."""
    binding = Binding(["a", "b"], {"a", "b"}, 2, PinRule(strict=True, wait_ms=100, pause_ms=7))

    assert binding.ask(0, 0, NO_SLOT, 0) == Wait(7)
    assert binding.ask(0, 0, NO_SLOT, 99) == Wait(7)
    assert binding.ask(0, 0, "a", 99) == Give(0)
    assert binding.ask(0, 1, "a", 100) == NoMoreWork()
    assert binding.ask(1, 0, "b", 100) == Give(1)


def test_strict_does_not_wait_for_a_slot_for_ever() -> None:
    binding = Binding(["b"], {"b"}, 2, PinRule(strict=True, wait_ms=100, pause_ms=7))

    assert binding.ask(0, 0, NO_SLOT, 0) == Wait(7)
    assert binding.ask(0, 0, NO_SLOT, 100) == NoMoreWork()


@pytest.mark.parametrize(("number", "position"), [(2, 0), (-1, 0), (0, 1), (0, 5)])
def test_questions_that_no_task_asks(number: int, position: int) -> None:
    binding = Binding(["a"], {"a"}, 2, PinRule())

    with pytest.raises(ValueError, match="task"):
        binding.ask(number, position, "a", 0)


def test_as_many_tasks_as_cores() -> None:
    assert count_tasks(["a"] * 9, {"a": 2, "b": 1.0}) == 3
    assert count_tasks(["a"], {"a": 2}) == 1
    assert count_tasks([], {"a": 2}) == 0
    assert count_tasks(["a"] * 9, {}) == 1
    # A single task might run where it is not to be read.
    assert count_tasks(["a"], {"a": 2, "b": 1.0, "c": 4}) == 3


def test_the_more_tasks_wait_the_less_often_each_asks() -> None:
    """Every 50 ms each, 400 tasks would ask 8,000 questions a second."""
    binding = Binding(["b", "b"], {"a", "b"}, 400, PinRule())
    assert binding.ask(0, 0, "b", 0) == Give(0)

    assert binding.ask(1, 0, "a", 0) == Wait(800)
    # It reads what is left as soon as it has waited long enough.
    assert binding.ask(1, 0, "a", 2_800) == Wait(200)
    assert binding.ask(1, 0, "a", 3_000) == Give(1)


def test_tasks_that_are_done_do_not_count() -> None:
    binding = Binding(["b", "b"], {"a", "b"}, 400, PinRule(strict=True, wait_ms=5_000))
    for number in range(399):
        assert binding.ask(number, 0, "a", 0) == NoMoreWork()
    assert binding.ask(399, 0, "a", 0) == Wait(50)


def test_few_tasks_wait_for_the_rules_pause() -> None:
    binding = Binding(["b"], {"a", "b"}, 20, PinRule())
    assert binding.ask(1, 0, "a", 0) == Wait(50)
