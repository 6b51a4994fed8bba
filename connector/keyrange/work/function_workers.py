"""Records through a user's function, one by one or in Arrow batches.

A record that fails holds back what comes of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError
from keyrange.work.limited_calls import called
from keyrange.work.model.outcome import UNFIT_TEXT, Cause
from keyrange.work.model.time_limits import ANY_TIME
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_alarm import RecordTimeout
from keyrange.work.record_stretches import Numbers, RecordStretch
from keyrange.work.records import UNFIT, Columns, Place, Record, Row, WrongResult, copied
from keyrange.work.table_forms import form_of
from keyrange.work.task_context import Task
from keyrange.work.user_errors import FAILURES, Said, overtime, said, said_of


class RecordWorker:
    """Calls the function with one record after the other."""

    def __init__(self, task: Task) -> None:
        assert task.job.function is not None
        self._task = task
        self._function = task.job.function
        self._form = form_of(task.job)
        self._owned: Callable[[Row], Row] = self._form.owned
        self._rows_of: Callable[[Any, Place], Sequence[Row]] = self._form.rows_of

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        """The output of some rows; what is not done of them goes to `not_done`."""
        task, alarm, function = self._task, self._task.alarm, self._function
        limits, limited = task.limits, task.job.terms.has_limits
        columns = Columns(stretch, task.known(stretch.partition).deliveries)
        held, key_hashes = task.held_in(stretch), stretch.key_hashes.tolist()
        rows: list[Row] = []
        owners: list[int] = []
        done: list[int] = []
        allowance, width, owned = ANY_TIME, self._form.width, self._owned
        for at in range(len(key_hashes)):
            if held and key_hashes[at] in held and stretch.row_has_key(at):
                not_done.add(at, task.why_held(stretch.partition, key_hashes[at]))
                continue
            if at in stretch.unreadable:
                task.refuse(stretch, at, not_done)
                continue
            if limited:
                allowance = limits.allowance(alarm.now_ms())
                if limits.spent:
                    task.hand_back(stretch, slice(at, None))
                    break
            try:
                record = Record(columns, at)
                if limited:
                    result = alarm.call(function, record, allowance.timeout_ms)
                    limits.settled()
                else:
                    result = function(record)
            except RecordTimeout as failure:
                if limits.hands_back(allowance, 1, alarm.now_ms()):
                    self._take_back(at)
                    task.hand_back(stretch, slice(at, None))
                    break
                why = overtime(failure, allowance.timeout_ms)
                self._failed(stretch, at, Cause.TIMED_OUT, why, not_done)
                if limits.spent:
                    task.hand_back(stretch, slice(at + 1, None))
                    break
            except WrongResult as failure:
                raise failure.error from None
            except FAILURES as failure:
                self._failed(stretch, at, Cause.REJECTED, said_of(failure), not_done)
            else:
                done.append(at)
                if type(result) is tuple and len(result) == width:
                    rows.append(owned(result))
                    owners.append(at)
                elif result is not None:
                    answered = list(map(owned, self._rows_of(result, record.place)))
                    rows += answered
                    owners += [at] * len(answered)
        try:
            parts = self._form.parts(rows)
        except UNFIT:
            answers: dict[int, list[Row]] = {at: [] for at in done}
            for row, owner in zip(rows, owners, strict=True):
                answers[owner].append(row)
            answers = self._that_fit(stretch, answers, not_done)
            parts = self._form.parts(list(chain.from_iterable(answers.values())))
            owners = [at for at, each in answers.items() for _ in each]
            done = [*answers]
        task.count(stretch, np.array(done, np.int64))
        for table, output, at_rows in parts:
            if output.num_rows:
                own = owners if at_rows is None else [owners[at] for at in at_rows]
                yield task.output(output, stretch.raw, pa.array(own, pa.int64()), table)

    def _take_back(self, at: int) -> None:
        """What the function was given is not done."""

    def _failed(
        self, stretch: RecordStretch, at: int, cause: Cause, why: Said, not_done: OutcomeRows
    ) -> None:
        self._take_back(at)
        self._task.fail(stretch, at, cause, why, not_done)

    def _take_back_answered(self, at: int) -> bool:  # noqa: ARG002
        """What the function has answered for a record is not done; whether its answers for later
        records of the key rest on that."""
        return False

    def _that_fit(
        self, stretch: RecordStretch, answers: dict[int, list[Row]], not_done: OutcomeRows
    ) -> dict[int, list[Row]]:
        """Records whose rows do not fit the schema are rejected. What the function made of later
        records of such a key is dropped: they wait as after any failure. Raises WRONG_RESULT where
        no row with values of these types could fit."""
        fit: dict[int, list[Row]] = {}
        waiting: set[int] = set()
        for at, rows in answers.items():
            key_hash = int(stretch.key_hashes[at])
            if key_hash in waiting and stretch.row_has_key(at):
                self._take_back_answered(at)
                self._task.held_in(stretch).add(key_hash)
                not_done.add(at, Cause.HELD_BACK)
                continue
            try:
                self._form.parts(rows)
            except UNFIT as failure:
                place = {"partition": stretch.partition, "offset": int(stretch.offsets[at])}
                self._form.check_types(rows, place)
                why = said(f"{UNFIT_TEXT}: {failure}")
                waits = self._task.fail(stretch, at, Cause.REJECTED, why, not_done)
                if self._take_back_answered(at) or waits:
                    waiting.add(key_hash)
            else:
                fit[at] = rows
        return fit


class ArrowWorker:
    """Calls the function with many records, and with halves of them where it fails."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._form = form_of(task.job)

    def work(self, stretch: RecordStretch, not_done: OutcomeRows) -> Iterator[pa.RecordBatch]:
        yield from self._piece(stretch, np.arange(len(stretch.offsets)), not_done)

    def _piece(
        self, stretch: RecordStretch, rows: Numbers, not_done: OutcomeRows
    ) -> Iterator[pa.RecordBatch]:
        task, limits = self._task, self._task.limits
        rows = task.free_rows(stretch, rows, not_done)
        if not len(rows):
            return
        allowance = limits.allowance(task.alarm.now_ms())
        if limits.spent:
            task.hand_back(stretch, rows)
            return
        piece = stretch.at(rows)
        parts, failed = called(task, self._call, piece, len(rows), allowance)
        if failed is None:
            self._keep()
            task.count(stretch, rows)
            for table, output in parts:
                if output.num_rows:
                    yield task.output_of_call(output, piece.raw, table)
        elif failed.cause is None:
            task.hand_back(stretch, rows)
        elif len(rows) == 1:
            task.fail(stretch, int(rows[0]), failed.cause, failed.why, not_done)
        else:
            yield from self._halves(stretch, rows, not_done)

    def _halves(
        self, stretch: RecordStretch, rows: Numbers, not_done: OutcomeRows
    ) -> Iterator[pa.RecordBatch]:
        """The left half first: what fails there holds back what is in the right one."""
        middle = len(rows) // 2
        yield from self._piece(stretch, rows[:middle], not_done)
        yield from self._piece(stretch, rows[middle:], not_done)

    def _call(self, stretch: RecordStretch) -> list[tuple[int, pa.RecordBatch]]:
        try:
            return self._cast(self._answer(stretch))
        except KeyrangeError as failure:
            raise WrongResult(failure) from None

    def _cast(self, answer: Any) -> list[tuple[int, pa.RecordBatch]]:
        """What a function has answered with, for the job's tables; Spark takes its rows at once,
        and the others wait for those of their file."""
        job, parts = self._task.job, self._form.cast_parts(answer)
        if job.as_they_are or not job.outputs:
            return parts
        return [(table, copied(rows)) for table, rows in parts]

    def _answer(self, stretch: RecordStretch) -> Any:
        assert self._task.job.function is not None
        return self._task.job.function(stretch.batch)

    def _keep(self) -> None:
        """The records that the function was given last are done."""
