"""The page of a report, served on this machine and kept up to date."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from keyrange.cli.http_server import Answer, Request, serving, text_answer
from keyrange.cli.render import note
from keyrange.cli.report.report_inputs import Collector
from keyrange.cli.values import iso, now
from keyrange.report.html import page, report
from keyrange.text.formats import moment


@dataclass(frozen=True, slots=True)
class Edition:
    """A report as it was made last. `stale` says why there is no newer one, and since when."""

    version: str
    content: dict[str, Any]
    stale: str = ""


class Press:
    """Makes a report anew, and keeps the last one that could be made."""

    def __init__(self, collector: Collector, library: str, every_ms: int) -> None:
        self._collector = collector
        self._library = library
        self._every_ms = every_ms
        self.edition = self._made()

    def print_anew(self) -> None:
        """Replace the edition. Whatever fails, the last one stays."""
        try:
            self.edition = self._made()
        except Exception as failure:
            if not self.edition.stale:
                since = f"{moment(iso(now()))} UTC"
                text = " ".join(str(failure).split()) or type(failure).__name__
                note(f"not made anew: {text}")
                stale = f"Not made anew since {since}: {text} Shown is what was known at "
                stale += f"{moment(self.edition.content['at'])} UTC."
                self.edition = replace(self.edition, stale=stale)

    def _made(self) -> Edition:
        content = report(self._collector.collect())
        text = json.dumps(content, sort_keys=True)
        return Edition(hashlib.sha256(text.encode()).hexdigest()[:16], content)

    def html(self) -> bytes:
        edition = self.edition
        return page(edition.content, self._library, edition.version, self._every_ms).encode()

    def news(self, known: str) -> bytes:
        """What is new for who knows a version: all of the report, or only that there is none."""
        edition = self.edition
        content = {} if known == edition.version else edition.content
        return json.dumps({"version": edition.version, "stale": edition.stale, **content}).encode()

    def answer(self, request: Request) -> Answer:
        asked = urlsplit(request.path)
        if request.body is not None:
            return text_answer("nothing is written here", HTTPStatus.METHOD_NOT_ALLOWED)
        if asked.path == "/":
            return Answer(self.html(), "text/html; charset=utf-8")
        if asked.path == "/report.json":
            known = parse_qs(asked.query).get("known", [""])[0]
            return Answer(self.news(known))
        return text_answer("there is / and /report.json", HTTPStatus.NOT_FOUND)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._every_ms / 1000):
            self.print_anew()


def serve_report(collector: Collector, library: str, port: int, every_ms: int) -> None:
    """Serve until Ctrl-C. Raises what the first report is refused with, and INVALID_OPTIONS for a
    port that is taken."""
    press = Press(collector, library, every_ms)
    stop = threading.Event()
    with serving(port, press.answer) as serve:
        threading.Thread(target=press.run, args=(stop,), daemon=True).start()
        try:
            serve()
        finally:
            stop.set()
