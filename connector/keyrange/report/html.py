"""The page: sections as HTML, figures as data beside it, and a policy: nothing else may run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any, Final

from keyrange.report.page_parts import Picture, QueryState, Section, Sources, Table
from keyrange.report.sections.batches import batches_section
from keyrange.report.sections.failed_records import letters_section
from keyrange.report.sections.lag import lag_section
from keyrange.report.sections.offsets import offsets_section
from keyrange.report.sections.ring import ring_section
from keyrange.report.sections.volumes import volumes_section
from keyrange.report.wording import escaped, in_script
from keyrange.text.formats import moment, number


def overview_section(sources: Sources) -> Section:
    """The chapter on top: in which state the query is and why, and what to do."""
    facts = [*sources.state.facts, ("partitions", number(len(sources.checkpoint["positions"])))]
    if sources.letters.document is not None:
        dead = sum(row["status"] == "dead" for row in sources.letters.document)
        facts.append(("dead letters", number(dead) if dead else "none"))
    return Section("overview", "State", facts, state=sources.state)


_SECTIONS: Final = (
    overview_section,
    lag_section,
    batches_section,
    letters_section,
    offsets_section,
    ring_section,
    volumes_section,
)
# What is longer is a sentence: a fact gets a row of its own, a cell has room to wrap.
_LONG: Final = 44
# A sentence or a command that is cut says too little.
_WHOLE: Final = 2_000


def report(sources: Sources) -> dict[str, Any]:
    """All that changes of a page, as JSON: the sections' HTML by name, and the views of each
    picture with their figures and tables."""
    sections = [make(sources) for make in _SECTIONS]
    return {
        "query": escaped(sources.query),
        "query_id": escaped(sources.checkpoint["query_id"] or "not known"),
        "at": sources.at,
        "sections": [
            {"name": each.name, "title": each.title, "html": _section(each)} for each in sections
        ],
        "pictures": {
            picture.name: _picture_data(picture) for each in sections for picture in each.pictures
        },
    }


def page(content: Mapping[str, Any], library: str, version: str = "", refresh_ms: int = 0) -> str:
    """The whole page in one text. `library` is plotly.js; `refresh_ms` says how often the page
    asks its server for another version than this one, 0 for a page of a file."""
    room = files("keyrange.report") / "page"
    script = (room / "page.js").read_text(encoding="utf-8")
    template = Template((room / "page.html").read_text(encoding="utf-8"))
    sections: Sequence[Mapping[str, str]] = content["sections"]
    return template.substitute(
        policy=policy([library, script], served=refresh_ms > 0),
        style=(room / "page.css").read_text(encoding="utf-8"),
        query=content["query"],
        query_id=content["query_id"],
        at=content["at"],
        at_text=f"{moment(content['at'])} UTC",
        links="".join(
            f'<li><a href="#{each["name"]}">{escaped(each["title"])}</a></li>' for each in sections
        ),
        sections="".join(
            f'<section id="{each["name"]}" aria-labelledby="{each["name"]}-title">'
            f"{each['html']}</section>"
            for each in sections
        ),
        data=in_script(
            {"pictures": content["pictures"], "version": version, "refresh_ms": refresh_ms}
        ),
        library=library,
        script=script,
    )


def policy(scripts: Sequence[str], served: bool) -> str:
    """The page's Content-Security-Policy: these scripts, by their hash, and no others."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    )
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {hashes}",
            # plotly.js sets the style of its own elements.
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "connect-src 'self'" if served else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _section(section: Section) -> str:
    """The same places in each: a page that is brought up to date puts new for old there."""
    facts = "".join(_fact(name, value) for name, value in section.facts if value)
    # As on the screen of `keyrange watch`: those are sentences, a line each.
    kind = ' class="lines"' if section.state is not None else ""
    return (
        f'<h2 id="{section.name}-title">{escaped(section.title)}</h2>'
        f"<div>{_state(section.state)}</div>"
        f"<div>{_paragraphs('failure', section.failures)}</div>"
        f"{f'<dl{kind}>{facts}</dl>' if facts else '<div></div>'}"
        f"<div>{_paragraphs('note', section.notes)}</div>"
        f"<div>{''.join(map(_picture, section.pictures))}</div>"
        f"<div>{''.join(map(_table, section.tables))}</div>"
        f"<div>{_paragraphs('missing', section.missing)}</div>"
    )


def _state(state: QueryState | None) -> str:
    """The state, why, and what to do."""
    if state is None:
        return ""
    causes = "".join(f"<li>{escaped(each, _WHOLE)}</li>" for each in state.causes)
    command = f"<pre><code>{escaped(state.command, _WHOLE)}</code></pre>" if state.command else ""
    return (
        f'<div class="state {state.level}"><p class="now">{escaped(state.text)}</p>'
        f"<h3>Why</h3><ul>{causes}</ul>"
        f"<h3>What to do</h3><p>{_sentence(state.advice)}</p>{command}</div>"
    )


def _fact(name: str, value: str) -> str:
    kind = ' class="long"' if len(value) > _LONG else ""
    return f"<div{kind}><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>"


def _paragraphs(kind: str, texts: Sequence[str]) -> str:
    return "".join(f'<p class="{kind}">{_sentence(text)}</p>' for text in texts)


def _sentence(text: str) -> str:
    """Options in it are marked as such, and not broken at their hyphens."""
    return _OPTION.sub(r"<code>\g<0></code>", escaped(text, _WHOLE))


_OPTION: Final = re.compile(r"(?<!\S)--[a-z][a-z-]*")


_ZOOMS: Final = {
    "x": (
        ("in", "+", "Zoom in"),
        ("out", "-", "Zoom out"),
        ("left", "←", "Move left"),
        ("right", "→", "Move right"),
    ),
    "y": (("up", "↑", "Move up"), ("down", "↓", "Move down")),
    "": (("reset", "Reset", "Show what was shown at first"), ("all", "All", "Show everything")),
}


def _picture(picture: Picture) -> str:
    name = picture.name
    chosen = picture.views[0]
    choice = ""
    if len(picture.views) > 1:
        options = "".join(
            f'<option value="{at}">{escaped(view.label, 120)}</option>'
            for at, view in enumerate(picture.views)
        )
        choice = (
            f'<label for="{name}-choice">{escaped(picture.choice)}</label>'
            f'<select id="{name}-choice" data-choice="{name}">{options}</select>'
        )
    zooms = ""
    if picture.zooms:
        buttons = "".join(
            f'<button type="button" data-zoom="{how}" data-of="{name}" aria-label="{said}: '
            f'{escaped(picture.title)}" title="{said}">{sign}</button>'
            for axis in (*picture.zooms, "")
            for how, sign, said in _ZOOMS[axis]
        )
        zooms = f'<div class="zooms" role="group" aria-label="Zoom">{buttons}</div>'
    return (
        f'<div class="picture" id="{name}"><h3 id="{name}-title">'
        f"{escaped(picture.title)}</h3>"
        f'<p id="{name}-summary">{escaped(chosen.summary)}</p>'
        f'<div class="tools">{choice}{zooms}</div>'
        f'<div class="plot" id="{name}-plot" role="img" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-summary"></div>'
        f"<details><summary>Table: {escaped(picture.title)}</summary>"
        f'<div id="{name}-table">{_table(chosen.table)}</div></details></div>'
    )


def _picture_data(picture: Picture) -> dict[str, Any]:
    """Of a picture with one view the sentence and the table are in the section's HTML alone."""
    views = [{"key": view.key, "figure": view.figure} for view in picture.views]
    if len(views) > 1:
        for found, view in zip(views, picture.views, strict=True):
            found |= {"summary": escaped(view.summary), "table": _table(view.table)}
    return {"views": views}


def _table(table: Table) -> str:
    numeric = [
        any(row[at] for row in table.rows) and all(_NUMBER.fullmatch(row[at]) for row in table.rows)
        for at in range(len(table.columns))
    ]
    head = "".join(
        f'<th scope="col"{_NUMERIC if numeric[at] and at else ""}>{escaped(each)}</th>'
        for at, each in enumerate(table.columns)
    )
    rows = "".join(
        f'<tr><th scope="row">{escaped(row[0])}</th>'
        f"{''.join(_cell(cell, numeric[at]) for at, cell in enumerate(row) if at)}</tr>"
        for row in table.rows
    )
    rows = rows or f'<tr><td colspan="{len(table.columns)}">nothing</td></tr>'
    left = ""
    if table.left_out:
        where = f"; {table.where} has all of them" if table.where else ""
        left = f'<p class="note">{table.left_out:,} more rows are not here{escaped(where)}.</p>'
    # What can be scrolled has to be reached by the keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(table.caption)}">'
        f"<table><caption>{escaped(table.caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{left}"
    )


# Numbers, nothing, and what is not known.
_NUMBER: Final = re.compile(r"(-?\d[\d,]*(\.\d+)?%?)?", re.ASCII)
_NUMERIC: Final = ' class="n"'


def _cell(text: str, numeric: bool) -> str:
    kind = _NUMERIC if numeric else ' class="t"' if len(text) > _LONG else ""
    return f"<td{kind}>{escaped(text)}</td>"
