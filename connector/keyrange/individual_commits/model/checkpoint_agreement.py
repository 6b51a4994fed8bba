"""What a checkpoint and a commit table have to say alike before a query goes on from both."""

from __future__ import annotations

from collections.abc import Mapping

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.commit_settings import KEY_HASH, OFFSET_HASH, CommitSettings
from keyrange.individual_commits.model.range_claims import (
    Claims,
    believed,
    group_state,
    of_topic,
    pieces_of,
)
from keyrange.ranges.model.key_ranges import SPACE
from keyrange.source.model.checkpoint import Checkpoint, CommitMark


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
    for partition, own_id, position in zip(
        states, states.topic_ids, states.positions.tolist(), strict=True
    ):
        at, topic_id = positions.get(partition, position), start.topic_ids.get(partition.topic, "")
        # Of an earlier topic of that name nothing is asked.
        if position != at and not (topic_id and own_id not in ("", topic_id)):
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
    names = {"hash": "splitBy", "null_keys": "nullKeys", "isolation": "commit.isolation"}
    values = {KEY_HASH: "keyRange", OFFSET_HASH: "offset"}
    option, was, is_now = next(
        (name, values.get(before, before), values.get(after, after))
        for field, name in names.items()
        if (before := getattr(known.terms, field)) != (after := getattr(terms, field))
    )
    return error(
        "COMMIT_TERMS_CHANGED",
        f"option {option} was {was} and is {is_now}, and records that are not done are known by "
        f"where that put them{why}",
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
