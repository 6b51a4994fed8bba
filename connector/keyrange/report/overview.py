"""What somebody wants to know first: where the query is, and what it waits for."""

from __future__ import annotations

from keyrange.report.lag import lag_facts, standings
from keyrange.report.parts import Section, Sources
from keyrange.report.words import state_of_keys_text
from keyrange.text.formats import counted, moment, number, rounded_span


def overview_section(sources: Sources) -> Section:
    """The chapter on top."""
    last = sources.checkpoint
    rows = standings(sources)
    unfinished = last["planned_not_committed"]
    facts = [
        ("batch", _batch(last["last_planned"], bool(unfinished))),
        ("planned", f"{moment(sources.history[-1]['at'])} UTC" if sources.history else ""),
        *lag_facts(rows),
        ("partitions", number(len(rows))),
    ]
    for more in (_commits, _state, _members, _letters, _volumes):
        facts += more(sources)
    return Section("overview", "Overview", [fact for fact in facts if fact[1]])


def _batch(planned: int, is_open: bool) -> str:
    return f"{planned:,}, {'not committed yet' if is_open else 'committed'}"


def _commits(sources: Sources) -> list[tuple[str, str]]:
    known = sources.commits.document
    if known is None:
        return []
    rows = known["show"]["partitions"]
    pending = sum(row["pending"] for row in rows)
    if not pending:
        return [("pending records", "none")]
    oldest = max(row["oldest_pending"]["age_ms"] for row in rows if row["oldest_pending"])
    return [("pending records", f"{pending:,}, the oldest for {rounded_span(oldest)}")]


def _state(sources: Sources) -> list[tuple[str, str]]:
    told = [row["state"] for row in sources.progress.document or () if row["state"]]
    return [("state of keys", state_of_keys_text(told[-1]))] if told else []


def _members(sources: Sources) -> list[tuple[str, str]]:
    known = sources.members.document
    if known is None:
        return []
    away = [each for each in known["list"]["members"] if each["state"] == "ABSENT"]
    text = counted(len(known["list"]["members"]), "member")
    absent = f", {len(away)} absent" if away else ""
    return [("members", f"{text}{absent}, epoch {known['list']['epoch']}")]


def _letters(sources: Sources) -> list[tuple[str, str]]:
    known = sources.letters.document
    if known is None:
        return []
    dead = sum(row["status"] == "dead" for row in known)
    return [("dead letters", number(dead) if dead else "none")]


def _volumes(sources: Sources) -> list[tuple[str, str]]:
    known = sources.volumes.document
    if known is None or known["factor"] is None:
        return []
    held = sum(bool(row["violated"]) for row in known["volumes"])
    full = f", {counted(held, 'volume')} at the limit" if held else ""
    return [("throttle factor", f"{known['factor']['value']:g}{full}")]
