"""The page of `keyrange state serve` as a browser shows it: keys, sizes and rates, with hostile
texts, and with a token."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from commands.chromium import Page, browser
from keyrange.cli.http_server import ADDRESS, LocalServer
from keyrange.cli.state.serve import StateAnswers
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.open_state import StatePlace
from keyrange.jobs.state_reader import StateReader
from keyrange.keyed_state.model.state_runs import after_batch
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.model.key_ranges import SPACE, hash_of
from keyrange.model.offsets import TopicPartition
from tables.commit_tables import MemoryCommitTable

HOSTILE = "<img src=x onerror=document.title=1>"
FORM = StateForm(variables_of({"total": ValueState("n long, note string")}))
AT = TopicPartition("orders", 0)


class State:
    """A commit table with the state of some keys, and a reader of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._table = MemoryCommitTable("source")
        self._runs: tuple = ()
        self._seq = 0
        self.commit(["customer-1", "customer-2", HOSTILE])
        commits = Commits("commits", "source", self._table)
        self.reader = StateReader(lambda _: commits, StatePlace(str(home), {}, None))

    def commit(self, keys: list[str]) -> None:
        states = TaskStates(FORM, StateSettings(str(self._home), "source", self._seq, 1))
        states.begin({AT: PartitionRuns((SPACE,), self._runs, True, "p")})
        rows = [
            {
                "key_hash": hash_of(key.encode()),
                "key": key.encode(),
                "total": {"n": number, "note": HOSTILE},
            }
            for number, key in enumerate(keys)
        ]
        states.change(AT, pa.RecordBatch.from_pylist(rows, FORM.schema))
        self._seq += 1
        self._runs = tuple(after_batch(self._runs, [run for _, run in states.finish()], self._seq))
        named = ("g", "source", "q", "r", self._seq, self._seq)
        known = {AT: fresh("", 100 * self._seq)}
        self._table.append(
            Commit(self._seq, CommitKind.BATCH, *named, states=known, runs={AT: self._runs})
        )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@contextmanager
def served(state: State, token: str | None = None) -> Iterator[str]:
    answer = StateAnswers("/lake/commits", state.reader).answer
    with LocalServer(0, answer, token=token, open_paths=frozenset({"/"})) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://{ADDRESS}:{server.server_port}/"
        server.shutdown()
        thread.join(60)


def shoot(page: Page, name: str) -> None:
    if directory := os.environ.get("KEYRANGE_SCREENSHOTS"):
        page.picture(Path(directory) / f"{name}.png")


def ask(page: Page, key: str, what: str) -> None:
    page.driver.execute_script("document.getElementById('key').value = arguments[0]", key)
    page.run(f"document.querySelector('button[value={what}]').click()")


ROWS = "document.getElementById('rows').textContent"


def test_keys_sizes_and_rates_are_shown_and_nothing_of_them_runs(
    page: Page, tmp_path: Path
) -> None:
    state = State(tmp_path)
    with served(state) as address:
        page.console()
        page.driver.get(address)
        page.wait("document.getElementById('where').textContent.includes('commit 1')")
        assert "orders-0" in page.run("document.getElementById('partitions').textContent")
        ask(page, "customer-2", "get")
        page.wait(f"{ROWS}.includes('customer-2')")
        assert HOSTILE in page.run(ROWS), "as text"
        ask(page, "customer-", "scan")
        page.wait(f"{ROWS}.includes('customer-1') && {ROWS}.includes('customer-2')")
        ask(page, "", "scan")
        page.wait(f"{ROWS}.includes('<img')")
        shoot(page, "state")
        assert page.run("document.getElementById('secret').offsetParent") is None
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.run("document.title") == "keyrange state"
        ask(page, "nobody", "scan")
        page.wait("document.getElementById('said').textContent === 'there is no such key'")
        state.commit(["customer-1", "customer-2", HOSTILE])
        rows = [each[1] for each in state.reader.sizes()]
        state.reader.refresh()
        assert [each[1] for each in state.reader.sizes()] == rows, "one run took up the other"
        page.wait("document.getElementById('where').textContent.includes('commit 2')")
        rate = "document.querySelector('#partitions tr').lastChild.textContent"
        page.wait(f"parseFloat({rate}) > 0")
        assert page.console() == []
        page.scheme("dark")
        page.size(390, 800)
        shoot(page, "state-telephone-dark")
        page.wait("document.documentElement.scrollWidth <= 390")


def test_who_has_the_token_sees_state_and_nobody_else(page: Page, tmp_path: Path) -> None:
    with served(State(tmp_path), "a token of some length") as address:
        page.driver.get(address)
        page.wait("document.getElementById('said').textContent.includes('Bearer')")
        page.wait("document.getElementById('secret').offsetParent !== null")
        page.run("document.getElementById('token').value = 'a token of some length'")
        page.wait("document.getElementById('where').textContent.includes('commit 1')")
        assert page.run("document.getElementById('said').textContent") == ""
