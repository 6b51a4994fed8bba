"""How what failed is told: by the names of exceptions, and never by what they say."""

from __future__ import annotations

from keyrange.individual_commits import last_batch_results
from keyrange.individual_commits.model.batch_results import (
    BatchResult,
    Failure,
    PendingError,
    failure_kinds,
    kinds_text,
    pending_kinds,
)
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import UNFIT_TEXT, Cause

PLACE = TopicPartition("t", 0)


def failed(offset: int, error: str, cause: Cause = Cause.REJECTED) -> Failure:
    return Failure(PLACE, offset, cause, error)


def test_exceptions_are_counted_by_their_names() -> None:
    found = failure_kinds(
        [
            failed(3, "KeyError: 's3cret'"),
            failed(4, "ValueError"),
            failed(5, "KeyError: 'other s3cret'"),
            failed(6, f"{UNFIT_TEXT}: s3cret"),
            failed(7, "RecordTimeout: it took longer than 5 ms", Cause.TIMED_OUT),
            failed(8, "s3cret: no number", Cause.UNREADABLE),
            failed(9, "s3cret of a customer"),
        ]
    )
    assert kinds_text(found) == (
        "KeyError 2 (such as offset 3 of t-0), ValueError 1 (such as offset 4 of t-0), "
        "a value that does not fit its column 1 (such as offset 6 of t-0), "
        "rejected 1 (such as offset 9 of t-0), timed out 1 (such as offset 7 of t-0) "
        "and 1 other kinds"
    )


def test_the_place_of_an_exception_is_told_with_its_first_record() -> None:
    found = failure_kinds(
        [
            failed(3, "KeyError: 's3cret' (prices.py, line 12, in price)"),
            failed(4, "KeyError: 's3cret' (prices.py, line 30, in rate)"),
            failed(5, "CancelledError (prices.py, line 9, in <lambda>)"),
        ]
    )
    assert kinds_text(found) == (
        "KeyError 2 (such as offset 3 of t-0; prices.py, line 12, in price), "
        "CancelledError 1 (such as offset 5 of t-0; prices.py, line 9, in <lambda>)"
    )


def test_texts_of_a_job_are_not_told() -> None:
    texts = ("s3cret: wrong", "s3cret", "wrong (s3cret, line 1, in s3cret)")
    found = failure_kinds(Failure(PLACE, 3, Cause.REJECTED, text, False) for text in texts)
    assert kinds_text(found) == "rejected 3 (such as offset 3 of t-0)"


def test_pending_records_are_counted_by_what_is_known_of_them() -> None:
    """By the error of those that failed, by the cause of others, and over all partitions."""
    causes = [Cause.HELD_BACK, Cause.REJECTED, Cause.REJECTED, Cause.TIMED_OUT, Cause.REJECTED]
    records = tuple(PendingRecord(at, at, cause=cause) for at, cause in enumerate(causes))
    state = PartitionState("", 9, (KeyRangeState(SPACE, 9, records),))
    errors = {(PLACE, at): PendingError("KeyError: s3cret", "KeyError") for at in (0, 1, 2, 3, 7)}
    other = TopicPartition("s", 1)
    errors[other, 4] = errors[PLACE, 1]
    found = pending_kinds({PLACE: state, other: state}, errors)
    assert kinds_text(found) == (
        "KeyError 3 (such as offset 4 of s-1), rejected 3 (such as offset 1 of s-1), "
        "held back 2 (such as offset 0 of s-1), timed out 2 (such as offset 3 of s-1)"
    )
    assert [(each.cause, each.error) for each in found[:2]] == [
        (Cause.REJECTED, "KeyError"),
        (Cause.REJECTED, ""),
    ]


def test_results_are_kept_for_a_while() -> None:
    result = BatchResult(1, 0, 0, 0, 0)
    for batch_id in range(1_500):
        last_batch_results.keep("q", batch_id, result)
    assert last_batch_results.result_of("q", 1_499) == result
    assert last_batch_results.result_of("q", 0) is None
    assert last_batch_results.result_of("other", 1_499) is None
