"""What is wrong with a run, by its facts. Pure.

Each record is in the table once or in the dead letters once; none is of another run; each key is in
order; no position moves back; and no driver ended for a reason that no fault gave it. What windows
have to be is in `window_checks`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from nemesis.facts import Facts, Gone, Place, Position, Row
from nemesis.window_checks import early, forgotten, misjudged, miswritten, rewritten, unclosed
from nemesis.work import ADDED_DEFAULT, added, deletes, is_copied

# How many examples a finding names.
_EXAMPLES = 5
# Causes of dead letters that no further delivery mends.
_FINAL = ("unreadable", "late")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: `what` in a word, how often, and examples."""

    what: str
    count: int
    examples: tuple[str, ...]


def check(facts: Facts) -> list[Finding]:
    """Everything that is wrong; empty where nothing is."""
    found = [
        _finding("lost", lost(facts)),
        _finding("doubled", doubled(facts)),
        _finding("foreign", foreign(facts)),
        _finding("disordered", disordered(facts)),
        _finding("miscounted", miscounted(facts)),
        _finding("stale", stale(facts)),
        _finding("uncopied", uncopied(facts)),
        _finding("misread", misread(facts)),
        _finding("misshapen", misshapen(facts)),
        _finding("windows miswritten", miswritten(facts)),
        _finding("windows rewritten", rewritten(facts)),
        _finding("windows forgotten", forgotten(facts)),
        _finding("windows early", early(facts)),
        _finding("misjudged", misjudged(facts)),
        _finding("moved back", moved_back(facts.positions, facts.gone)),
        _finding("given up early", given_up_early(facts)),
        _finding("ended", ended(facts)),
    ]
    complaints: dict[str, list[str]] = defaultdict(list)
    for what, text in facts.complaints:
        complaints[what].append(text)
    found += [_finding(what, texts) for what, texts in complaints.items()]
    return [each for each in found if each is not None]


def _finding(what: str, texts: Iterable[str]) -> Finding | None:
    all_of_them = list(texts)
    if not all_of_them:
        return None
    return Finding(what, len(all_of_them), tuple(all_of_them[:_EXAMPLES]))


def lost(facts: Facts) -> Iterator[str]:
    """Records that are neither in the table nor among the dead letters, and that a reader finds."""
    present = {row.place for row in facts.rows} | {letter.place for letter in facts.letters}
    if facts.timed is not None and not facts.timed.has_rows:
        present |= unclosed(facts)
    for place in sorted(facts.sent.keys() - present - facts.unreadable):
        if not any(gone.took(place) and _stays_gone(gone, place, facts) for gone in facts.gone):
            yield f"{place} of key {facts.sent[place]}"


def removed(places: Iterable[Place], deleted: Collection[Gone]) -> set[Place]:
    """The records that were deleted from Kafka's log."""
    return {place for place in places if any(each.took(place) for each in deleted)}


def waiting(
    sent: Mapping[Place, str], present: Set[Place], gone: Collection[Gone]
) -> Iterator[Place]:
    """Sent records that are not `present` in a table, and that no fault took away."""
    for place in sent.keys() - present:
        if not any(each.took(place) for each in gone):
            yield place


def doubled(facts: Facts) -> Iterator[str]:
    """Records that are there more often than once, and once more for each time that somebody asked
    for it, or sent it twice; or in the table and among the dead letters."""
    rows = Counter(row.place for row in facts.rows)
    letters = Counter(letter.place for letter in facts.letters)
    for place in sorted(rows.keys() | letters.keys()):
        times = rows[place] + letters[place]
        asked = sum(again.handed(place) for again in facts.again)
        if times > 1 + asked + (place.n in facts.in_both_logs):
            yield f"{place}: {rows[place]} rows, {letters[place]} dead letters"


def foreign(facts: Facts) -> Iterator[str]:
    """What is of another run, or was never sent."""
    for row in facts.rows:
        if row.run != facts.run:
            yield f"{row.place} of run {row.run}"
        elif not _is_own(facts, row.place):
            yield f"{row.place} was never sent"
    for letter in facts.letters:
        if not _is_own(facts, letter.place):
            yield f"dead letter {letter.place} was never sent"


def disordered(facts: Facts) -> Iterator[str]:
    """Keys whose records were worked on, or came to the table, in another order than they were
    sent. A record that somebody had handed out again, or sent twice, has no place in that order."""
    yield from _disordered(facts, facts.rows)
    yield from _disordered(facts, facts.copies or ())


def _disordered(facts: Facts, rows_of_a_place: Sequence[Row]) -> Iterator[str]:
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows_of_a_place:
        twice = row.place in facts.replayed or row.place.n in facts.in_both_logs
        if not twice and not any(again.handed(row.place) for again in facts.again):
            by_key[row.key].append(row)
    for key, rows in by_key.items():
        rows.sort(key=lambda row: row.place.n)
        for before, after in pairwise(rows):
            if before.at > after.at:
                yield f"key {key}: {after.place} was worked on before {before.place}"
            elif before.version > after.version:
                yield (
                    f"key {key}: {after.place} is in version {after.version}, "
                    f"{before.place} in {before.version}"
                )


def miscounted(facts: Facts) -> Iterator[str]:
    """Keys whose rows do not say one after the other how many records of the key were done, in the
    order in which they were worked on. A topic that was made anew begins anew."""
    by_key: dict[tuple[str, int], list[Row]] = defaultdict(list)
    handed = {again.partition for again in facts.again}
    for row in facts.rows:
        if row.seen is not None and row.place.partition not in handed:
            by_key[row.key, row.place.partition].append(row)
    anew = 1 + sum(gone.partition == -1 for gone in facts.gone)
    for (key, partition), rows in sorted(by_key.items()):
        seen = [row.seen for row in sorted(rows, key=lambda row: row.at)]
        steps = [after != (before or 0) + 1 for before, after in pairwise([0, *seen])]
        begins = [at for at, is_step in enumerate(steps) if is_step]
        if len(begins) >= anew or any(seen[at] != 1 for at in begins):
            yield f"key {key} of partition {partition} was counted {seen}"[:400]


def stale(facts: Facts) -> Iterator[str]:
    """Keys of which the table of last rows has another row than the last one that came to the table
    of all, or several, or one though that row deletes its key, or none. Of one batch it is the last
    one of its partition."""
    if facts.last is None:
        return
    came: dict[str, list[Row]] = defaultdict(list)
    for row in facts.rows:
        came[row.key].append(row)
    held: dict[str, list[Row]] = defaultdict(list)
    for row in facts.last:
        held[row.key].append(row)
    for key in sorted(came.keys() | held.keys()):
        version = max((row.version for row in came[key]), default=0)
        ends: dict[int, Row] = {}
        for row in came[key]:
            if row.version == version:
                before = ends.setdefault(row.place.partition, row)
                later = row.place.offset >= before.place.offset
                ends[row.place.partition] = row if later else before
        found = [row.place for row in held[key]]
        wanted = sorted(row.place for row in ends.values())
        if found not in [[] if deletes(place.n) else [place] for place in wanted]:
            yield f"key {key}: {found}, and the last one is {wanted}"


def uncopied(facts: Facts) -> Iterator[str]:
    """Rows that are not as often in the table of copies as in the first one: a function answers
    once for both. Records that it leaves out of the copies are not there."""
    if facts.copies is None:
        return
    rows = Counter((row.place, row.at) for row in facts.rows if is_copied(row.place.n))
    copies = Counter((row.place, row.at) for row in facts.copies)
    for place, at in sorted(rows.keys() | copies.keys()):
        if rows[place, at] != copies[place, at]:
            yield f"{place}: {rows[place, at]} rows, {copies[place, at]} copies"


def misread(facts: Facts) -> Iterator[str]:
    """Rows whose added fields are not what their writer wrote, or the schema's default where the
    writer did not know them. The last row of a key has what its row in the first table has."""
    came = {row.place: row for row in facts.rows}
    for row in (*facts.rows, *(facts.copies or ())):
        wanted = tuple(
            added(row.place.n, at) if at <= row.writer else ADDED_DEFAULT
            for at in range(1, len(row.added) + 1)
        )
        if row.added != wanted:
            yield f"{row.place} by a writer of {row.writer} fields: {row.added}"
    for row in facts.last or ():
        first = came.get(row.place)
        # Columns that the row's batch did not have keep what the key had before.
        if first is not None and row.added[: len(first.added)] != first.added:
            yield f"{row.place}: the last row has {row.added}, and came with {first.added}"


# Of so many versions behind a driver's start the first one may finish what another has left.
_BEHIND = 3


def misshapen(facts: Facts) -> Iterator[str]:
    """Versions of a table whose columns are not those that a schema of their time says."""
    for name, versions in sorted(facts.versions.items()):
        for before, after in pairwise(versions):
            if after.fields < before.fields:
                yield f"{name} {after.number}: {before.fields} fields before, now {after.fields}"
            if after.fields > before.fields and after.written != after.fields:
                yield (
                    f"{name} {after.number}: {after.fields} fields, {before.fields} before, and "
                    f"its files have {after.written}"
                )
        for each in versions:
            if (each.written or 0) > each.fields:
                yield f"{name} {each.number}: {each.fields} fields, and files of {each.written}"
    # Drivers are told the version of the first table.
    fields = {each.number: each.fields for each in facts.versions.get("table", ())}
    ends = [start.version for start in facts.starts[1:]] + [max(fields, default=-1)]
    for start, end in zip(facts.starts, ends, strict=False):
        if start.alone and end >= start.version + _BEHIND and fields[end] < start.fields:
            yield (
                f"the driver that began at version {start.version} was told {start.fields} fields, "
                f"and version {end} has {fields[end]}"
            )


def moved_back(positions: Sequence[Position], gone: Sequence[Gone]) -> Iterator[str]:
    """Partitions that stood further at an earlier step of a history. Where a log was cut back, its
    end may be all that is left to stand at."""
    last: dict[tuple[str, int, str], Position] = {}
    cut_back = {each.partition for each in gone if each.fault == "unclean-election"}
    for each in positions:
        name = (each.of, each.partition, each.topic_id)
        before = last.get(name)
        allowed = each.moved_back or each.partition in cut_back
        if before is not None and each.offset < before.offset and not allowed:
            yield (
                f"{each.of}: partition {each.partition} from {before.offset} at {before.step} "
                f"to {each.offset} at {each.step}"
            )
        last[name] = each


def given_up_early(facts: Facts) -> Iterator[str]:
    """Dead letters that were not worked on as often as the query was told to, where that could have
    helped."""
    for letter in facts.letters:
        if letter.cause not in _FINAL and letter.attempts < facts.deliveries_max:
            yield f"{letter.place} after {letter.attempts} of {facts.deliveries_max} times"


def ended(facts: Facts) -> Iterator[str]:
    """Ends of drivers that no fault explains."""
    for end in facts.ends:
        if end.why not in end.allowed:
            yield f"at {end.at_s:.0f} s with {end.why}: {end.text}"


def _is_own(facts: Facts, place: Place) -> bool:
    """Whether a record may have been sent: the log that held it may be gone."""
    if place in facts.sent or place.n in facts.unsure:
        return True
    return any(gone.took(place) for gone in facts.gone)


def _stays_gone(gone: Gone, place: Place, facts: Facts) -> bool:
    """Whether a record that a fault took away is none that a reader would find. A broker that is
    killed forgets where it was told that a log begins: what was deleted may be back."""
    return gone.fault == "delete-ahead" or place not in facts.log
