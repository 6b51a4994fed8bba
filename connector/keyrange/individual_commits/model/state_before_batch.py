"""The state that a batch begins with: that of the commit which its plan names, also where the batch
runs again and later commits are there; and what checkpoint and commit table have to say alike
before a query goes on from both.

Rule of this file: no Spark and no cluster, so that the process that plans and the one that commits
find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import CommitTable, Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState, fresh
from keyrange.individual_commits.model.range_claims import (
    Claims,
    believed,
    group_state,
    of_topic,
    pieces_of,
)
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import KEY_HASH, OFFSET_HASH, CommitSettings
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition


def planned_from(mark: CommitMark, table_of: Callable[[str], CommitTable]) -> Snapshot:
    """What the plan of a batch knows, by a function that opens the commits of a source.

    A query that resumes begins with the states of the other source, and with no commit: batches
    have numbers of their own in every checkpoint.
    """
    if mark.resumes is not None:
        source, seq = mark.resumes
        return resumed_from(table_of(source).known(seq))
    return table_of(mark.source_id).known(mark.seq)


def resumed_from(before: Snapshot) -> Snapshot:
    """What a query knows that goes on from the commits of another source.

    In transactional isolation finished output above the committed offset is in the other source's
    verdicts and in no sink: it is made again. Raises STATE_AHEAD where the state of keys has it.
    """
    states = before.states
    if before.terms is not None and before.terms.isolation == "transactional":
        _check_state_is_not_ahead(before)
        # Commands that read no commits import this module too, and do not wait for numpy.
        from keyrange.individual_commits.model.state_columns import columns_of

        afresh = {
            p: fresh(state.topic_id, state.committed, state.leader_epoch)
            for p, state in states.items()
        }
        states = columns_of(afresh)
    return Snapshot(
        states=states,
        terms=before.terms,
        runs=before.runs,
        times=before.times,
        is_import=before.is_import,
        at_ms=before.at_ms,
    )


def _check_state_is_not_ahead(before: Snapshot) -> None:
    for partition, state in before.states.items() if any(before.runs.values()) else ():
        if any(piece.scanned > state.committed for piece in state.pieces):
            raise error(
                "STATE_AHEAD",
                f"output of partition {partition} from offset {state.committed} on reached no sink "
                "and would be made again, and the state of keys has these records",
                partition=partition,
                offset=state.committed,
            )


def check_import(
    known: Snapshot, partitions: Collection[TopicPartition], ids: Mapping[str, str]
) -> None:
    """Whether imported state is that of the topics and partitions that a query reads.

    Raises INITIAL_STATE_MISPLACED.
    """
    topics = {each.topic for each in known.states}
    for partition in sorted({*partitions, *(each for each, runs in known.runs.items() if runs)}):
        known_id, topic_id = known.states.topic_id_of(partition), ids.get(partition.topic, "")
        why = ""
        if partition not in partitions:
            why = "state was imported for it, and the query does not read it"
        elif partition.topic in topics and known_id is None:
            why = "the topic had no such partition when state was imported"
        elif topic_id and known_id not in (None, "", topic_id):
            why = "the topic was made again since state was imported"
        if why:
            raise error("INITIAL_STATE_MISPLACED", f"partition {partition}: {why}")


def state_of(
    known: Snapshot, partition: TopicPartition, start: Checkpoint, end: Checkpoint
) -> PartitionState:
    """The state of a partition before a batch: as it was committed, or that of one that begins.

    Where a log was cut back, what was committed below the cut holds.
    """
    topic_id = end.topic_ids.get(partition.topic, "")
    begins = end.initial.get(partition)
    at = begins if begins is not None else start.positions[partition]
    if not known.states.is_of(partition, topic_id):
        return fresh(topic_id, at)
    state = known.states[partition]
    if begins is None or begins == state.position:
        return state
    cut = cut_of(known, partition, start, end)
    return state.cut_back(cut) if cut is not None else fresh(topic_id, at)


def cut_of(
    known: Snapshot, partition: TopicPartition, start: Checkpoint, end: Checkpoint
) -> int | None:
    """Where the log of a partition was cut back before a batch, below what was committed of it;
    None where it was not."""
    topic_id = end.topic_ids.get(partition.topic, "")
    begins = end.initial.get(partition)
    if begins is None or not known.states.is_of(partition, topic_id):
        return None
    stood = partition in start.positions or partition in start.absent
    # Of a start without a checkpoint only what it resumes from has leader epochs.
    went_on = stood and (not start.fresh or partition in start.leader_epochs)
    return begins if went_on and begins < known.states[partition].position else None


def cuts_of(
    known: Snapshot, partitions: Container[TopicPartition], start: Checkpoint, end: Checkpoint
) -> dict[TopicPartition, int]:
    """Where logs were cut back below what was committed, and so begins what a batch has read."""
    # Such a log begins elsewhere than where the batch before ended; an empty batch has read none.
    begun = [each for each in end.initial if each in partitions] if start != end else []
    found = {each: cut_of(known, each, start, end) for each in begun}
    return {each: at for each, at in found.items() if at is not None}


def check_agreement(known: Snapshot, start: Checkpoint) -> None:
    """Whether all of the batch that ended at `start` is committed, and nothing beyond it.

    Raises KeyrangeError: COMMITS_MISSING, COMMITS_BEHIND or COMMITS_AHEAD.
    """
    mark = start.commits
    if mark is None or start.fresh:
        return
    if known.seq <= mark.seq:
        raise lacking(known, mark)
    positions, states = start.known, known.states
    for partition, position in zip(states, states.positions.tolist(), strict=True):
        at, topic_id = positions.get(partition, position), start.topic_ids.get(partition.topic, "")
        # Of an earlier topic of that name nothing is asked.
        if position != at and states.is_of(partition, topic_id):
            raise error(
                "COMMITS_BEHIND" if position < at else "COMMITS_AHEAD",
                f"partition {partition} stands at {at} in the checkpoint and at {position} "
                "in the commit table",
                source_id=mark.source_id,
                seq=known.seq,
            )


def lacking(known: Snapshot, mark: CommitMark) -> KeyrangeError:
    """The table lacks what a batch was planned from: it is gone, or an older copy."""
    if not known.seq:
        return error(
            "COMMITS_MISSING",
            "a batch finished, and the commit table has no commit of this query",
            source_id=mark.source_id,
        )
    return error(
        "COMMITS_BEHIND",
        f"the last batch was planned from commit {mark.seq}, and the commit table is at commit "
        f"{known.seq}",
        source_id=mark.source_id,
    )


def check_all_done(known: Snapshot, what: str) -> None:
    """Who reads on by positions alone reads no record again. Raises COMMIT_TERMS_CHANGED."""
    if known.states.is_left:
        pending = known.states.pending.shape[1]
        raise error(
            "COMMIT_TERMS_CHANGED",
            f"{what}, and {pending} records are not done, which would never come again",
            seq=known.seq,
        )


def check_terms(known: Snapshot, terms: CommitSettings) -> None:
    """What the stored numbers rest on may change only while nothing is left to be done.

    Raises COMMIT_TERMS_CHANGED.
    """
    if known.terms is not None and known.terms != terms and known.states.is_left:
        raise _terms_changed(known, terms)


def check_group_terms(
    claims: Claims,
    known: Mapping[str, Snapshot],
    terms: CommitSettings,
    topic_ids: Mapping[str, str],
    living: Mapping[str, str],
) -> None:
    """As `check_terms`, for a consumer that is about to claim key ranges of its group.

    `known` is by source, as `claims` are. What stands on other terms has to end at one offset of
    its partition, with everything before it done by the whole group: a record may belong to other
    keys' ranges from there on. `living` are the slots, by source, of those who go on with what they
    hold: what two consumers place differently would come to both, or to none.
    """
    other = {s: each for s, each in known.items() if each.terms not in (None, terms)}
    for source in sorted(other.keys() & living.keys()):
        why = f"; consumer {living[source]} reads key ranges of the group that way"
        raise _terms_changed(other[source], terms, why)
    for partition in sorted({p for each in other.values() for p in each.states}):
        every = {s: each.states[partition] for s, each in known.items() if partition in each.states}
        states = of_topic(every, topic_ids.get(partition.topic, ""))
        whole = group_state(claims, states, partition)
        for span, source in believed(claims, partition, SPACE):
            if whole is None or source not in other or source not in states:
                continue
            if any(each.scanned != whole.committed for each in pieces_of(states[source], span)):
                raise _terms_changed(other[source], terms)


def _terms_changed(known: Snapshot, terms: CommitSettings, why: str = "") -> KeyrangeError:
    names = {
        "hash": "splitBy",
        "null_keys": "nullKeys",
        "isolation": "commit.isolation",
        "state_topic": "state.topic",
        "keys": "keys",
    }
    values = {KEY_HASH: "keyRange", OFFSET_HASH: "offset", "": "not given"}
    option, was, is_now = next(
        (name, values.get(before, before), values.get(after, after))
        for field, name in names.items()
        if (before := getattr(known.terms, field)) != (after := getattr(terms, field))
    )
    return error(
        "COMMIT_TERMS_CHANGED",
        f"option {option} was {was} and is {is_now}, which places or leaves out records that are "
        f"not done{why}",
        seq=known.seq,
    )


def check_mode(planned: Checkpoint, individual: bool) -> None:
    """A batch is finished in the mode that it was planned in. Raises BATCH_UNFINISHED."""
    modes = (planned.commits is not None, individual)
    was, is_now = ("individual" if each else "batch" for each in modes)
    if was != is_now:
        raise error(
            "BATCH_UNFINISHED",
            f"a batch that was planned with commitMode={was} is not finished, and commitMode is "
            f"{is_now}",
        )
