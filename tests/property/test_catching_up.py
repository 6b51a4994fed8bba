"""When a lag will be gone: against lines that are known, and what must hold of any lags."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keyrange.observing.model.catching_up import LagAt, catching_up

LAGS = st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 10**12)), min_size=1, max_size=30)


def seen(steps: list[tuple[int, int]]) -> list[LagAt]:
    """Lags, each so many ms after the one before."""
    at_ms, found = 1_750_000_000_000, []
    for pause_ms, lag in steps:
        at_ms += pause_ms
        found.append(LagAt(at_ms, lag))
    return found


@given(per_s=st.integers(1, 10_000), left_s=st.integers(1, 10_000), count=st.integers(3, 40))
def test_a_steady_lag_is_told_exactly(per_s: int, left_s: int, count: int) -> None:
    lags = [(1_000, per_s * (left_s + count - 1 - number)) for number in range(count)]
    found = catching_up(seen(lags))
    assert found is not None
    assert found.shrinks_per_s == pytest.approx(per_s, rel=1e-6)
    for told in (found.ms, found.least_ms, found.most_ms):
        assert told == pytest.approx(left_s * 1000, rel=1e-6, abs=1)


@given(per_s=st.integers(0, 10_000), count=st.integers(3, 40))
def test_of_a_lag_that_grows_no_time_is_told(per_s: int, count: int) -> None:
    found = catching_up(seen([(1_000, 5 + per_s * number) for number in range(count)]))
    assert found is not None
    assert (found.ms, found.least_ms, found.most_ms) == (None, None, None)
    assert found.shrinks_per_s == pytest.approx(-per_s, abs=1e-6)


@given(LAGS)
def test_what_must_hold_of_any_lags(steps: list[tuple[int, int]]) -> None:
    lags = seen(steps)
    found = catching_up(lags)
    if len(lags) < 3:
        assert found is None
        return
    assert found is not None
    if lags[-1].offsets == 0:
        assert (found.ms, found.least_ms, found.most_ms) == (0, 0, 0)
    elif found.ms is None:
        assert found.shrinks_per_s <= 0
        assert (found.least_ms, found.most_ms) == (None, None)
    else:
        assert found.least_ms is not None
        assert 0 <= found.least_ms <= found.ms
        assert found.most_ms is None or found.ms <= found.most_ms


@given(LAGS)
def test_against_a_naive_line(steps: list[tuple[int, int]]) -> None:
    """The slope with the least squares, by the normal equations in fractions."""
    from fractions import Fraction

    lags = seen(steps)
    assume(len(lags) >= 3)
    n = len(lags)
    xs = [Fraction(each.at_ms, 1000) for each in lags]
    ys = [Fraction(each.offsets) for each in lags]
    slope = (n * sum(x * y for x, y in zip(xs, ys, strict=True)) - sum(xs) * sum(ys)) / (
        n * sum(x * x for x in xs) - sum(xs) ** 2
    )
    found = catching_up(lags)
    assert found is not None
    assert found.shrinks_per_s == pytest.approx(-float(slope), rel=1e-6, abs=1e-3)


def test_a_lag_that_fell_and_then_grew_is_not_believed_for_sure() -> None:
    steps = [(1_000, lag) for lag in (100, 80, 60, 40, 41, 43, 45)]
    found = catching_up(seen(steps))
    assert found is not None
    assert found.ms is not None
    assert found.most_ms is None


def test_one_moment_is_none() -> None:
    assert catching_up([]) is None
    assert catching_up([LagAt(5, 1), LagAt(5, 2), LagAt(5, 3)]) is None
