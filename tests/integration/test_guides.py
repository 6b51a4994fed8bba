"""What the README and the guides show is run: Python in a session, commands on what it has made.

`.start(` of a block ends by itself here, and what a block only defines is read to its end. A file
is one namespace, as a notebook is.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQueryManager
from typer.testing import CliRunner

from brokers.real_broker import Record, Topics
from keyrange.cli.main import app
from keyrange.embedded import jars
from keyrange.errors import KeyrangeError
from keyrange.model.offsets import TopicPartition
from project.snippets import DOCUMENTS, ROOT, Snippet, command_lines, snippets
from queries.recipe_stage import REGISTRY, check_recipes, recipe_stage
from registries.server import schema_registry
from samples.member_samples import append_all, assignment, owned, stored, table_at

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TOPIC, WRITTEN = "orders", "orders_out"
# Topics that share the state of their keys with the first one.
BESIDE = ("customers", "payments")
PARTITIONS, RECORDS = 4, 800
README = ROOT / "README.md"
RECIPES = ROOT / "connector" / "guides" / "recipes.md"
INDIVIDUAL_COMMITS = ROOT / "connector" / "guides" / "individual-commits.md"


class Places:
    """What the documents' names stand for."""

    def __init__(self, bootstrap_servers: str, home: Path) -> None:
        self.home = home
        self.lake = home / "lake"
        self._names = {
            "broker:9092": bootstrap_servers,
            "s3a://lake": str(self.lake),
            "s3://lake": str(self.lake),
            "/lake/": f"{self.lake}/",
            # Whatever this machine's disk is like, a query is not to be held back.
            '"min.available.ratio", "0.1"': '"min.available.ratio", "0.0000001"',
            '"min.available.ratio": "0.1"': '"min.available.ratio": "0.0000001"',
            ".start(": ".trigger(availableNow=True).start(",
        }

    def add(self, name: str, stand_in: str) -> None:
        self._names[name] = stand_in

    def put(self, text: str) -> str:
        pieces = [text]
        for name, key_hash in self._names.items():
            # What was put in already is not looked at again.
            pieces = [
                part
                for at, piece in enumerate(pieces)
                for part in ([piece] if at % 2 else _between(piece, name, key_hash))
            ]
        return "".join(pieces)


def _between(text: str, name: str, key_hash: str) -> list[str]:
    first, *others = text.split(name)
    return [first, *(part for other in others for part in (key_hash, other))]


@contextmanager
def session_as_it_was(spark: SparkSession) -> Iterator[None]:
    """Other tests share the session: its settings come back, and its listeners go."""
    settings = dict(spark.conf.getAll)
    added: list[StreamingQueryListener] = []
    add = StreamingQueryManager.addListener

    def noted(manager: StreamingQueryManager, listener: StreamingQueryListener) -> None:
        add(manager, listener)
        added.append(listener)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamingQueryManager, "addListener", noted)
            yield
    finally:
        for listener in added:
            spark.streams.removeListener(listener)
        for name in dict(spark.conf.getAll).keys() - settings.keys():
            spark.conf.unset(name)


class Pages:
    """Runs the blocks of documents."""

    def __init__(self, spark: SparkSession, key_hashes: Places) -> None:
        self.spark, self.key_hashes = spark, key_hashes
        self.modules = key_hashes.home / "modules"
        # How many blocks ran of the pages that make what the others speak of.
        self.ran: dict[Path, int] = {}

    def run(self, path: Path, languages: tuple[str, ...] = ("python", "bash", "sql")) -> int:
        """Run a document from its beginning; how many blocks ran."""
        names: dict[str, Any] = {"__name__": "__main__", "spark": self.spark, **_given(path)}
        run = {"python": self._python, "bash": self._bash, "sql": self._sql}
        ran = 0
        with session_as_it_was(self.spark):
            for each in snippets(path):
                if each.language in languages and "no-test" not in each.marks:
                    run[each.language](each, names)
                    ran += 1
        return ran

    def _python(self, snippet: Snippet, names: dict[str, Any]) -> None:
        text = self.key_hashes.put(snippet.text)
        if module := snippet.marks.get("file"):
            self._add_module(module, text)
            return
        before = dict(names)
        # Lines of a traceback are those of the document.
        code = compile("\n" * (snippet.line - 1) + text, str(snippet.path), "exec")
        exec(code, names)  # noqa: S102
        started = self.spark.streams.active
        for query in started:
            assert query.awaitTermination(120), f"{snippet}: the query goes on"
        made = [each for name, each in names.items() if each is not before.get(name)]
        if "load-only" not in snippet.marks:
            for each in made:
                if isinstance(each, DataFrame):
                    self._read(each, bool(started) or ".start(" in text, snippet)
        for query in made:
            if hasattr(query, "exception") and hasattr(query, "lastProgress"):
                assert query.exception() is None, f"{snippet}: {query.exception()}"

    def _read(self, frame: DataFrame, started: bool, snippet: Snippet) -> None:
        if not frame.isStreaming:
            frame.write.format("noop").mode("overwrite").save()
        elif not started:
            checkpoint = (
                self.key_hashes.home / "checkpoints" / f"{snippet.path.stem}-{snippet.line}"
            )
            writer = frame.writeStream.format("noop").trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            assert query.awaitTermination(120), f"{snippet}: the query goes on"

    def _add_module(self, name: str, text: str) -> None:
        key_hash = self.modules / name
        key_hash.parent.mkdir(parents=True, exist_ok=True)
        (key_hash.parent / "__init__.py").touch()
        key_hash.write_text(text)
        archive = shutil.make_archive(str(self.key_hashes.home / "modules"), "zip", self.modules)
        self.spark.sparkContext.addPyFile(archive)

    def _bash(self, snippet: Snippet, names: dict[str, Any]) -> None:
        for words in command_lines(self.key_hashes.put(snippet.text)):
            assert words[0] == "keyrange", f"{snippet}: {words[0]} is not run here: mark the block"
            result = CliRunner().invoke(app, words[1:], prog_name="keyrange")
            said = f"{snippet}: {' '.join(words)}\n{result.output}\n{result.exception!r}"
            assert result.exit_code == 0, said

    def _sql(self, snippet: Snippet, names: dict[str, Any]) -> None:
        for statement in self.key_hashes.put(snippet.text).split(";"):
            if statement.strip():
                self.spark.sql(statement).collect()


def _given(path: Path) -> dict[str, Callable[..., Any]]:
    """What a document takes for granted: the reader's own functions."""
    if path.name != "consumer.md":
        return {}
    left = itertools.cycle([True] * 6 + [False])
    return {
        "work": lambda row: (row if isinstance(row, dict) else row._asdict())["offset"] % 50 != 7,
        "running": lambda: next(left),
        "database_is_away": lambda: False,
    }


def orders() -> list[Record]:
    """Orders of some aircraft, of which a few have no price and a few no key. The first one of each
    partition is younger than all that are behind it."""
    ahead = time.time_ns() // 1_000_000 + 1_800_000
    records = []
    for n in range(RECORDS):
        order = {"id": n, "price": n / 4} if n % 97 else {"id": n}
        key = None if n % 50 == 49 else b"N14228" if n % 11 == 0 else b"N%05d" % (n % 40)
        timestamp_ms = ahead if n < PARTITIONS else None
        records.append(Record(json.dumps(order).encode(), key, n % PARTITIONS, timestamp_ms))
    return records


@pytest.fixture(scope="module")
def pages(spark: SparkSession, topics: Topics, tmp_path_factory: Any) -> Iterator[Pages]:
    """The topic, the tables and the checkpoints that the documents speak of."""
    home = tmp_path_factory.mktemp("guides")
    topics.create_named(TOPIC, PARTITIONS)
    topics.create_named(WRITTEN, 1)
    for name in BESIDE:
        topics.create_named(name, PARTITIONS)
    topics.produce(TOPIC, orders())
    key_hashes = Places(topics.cluster.bootstrap_servers, home)
    made = Pages(spark, key_hashes)
    owners = {TopicPartition(TOPIC, n): owned(f"orders-{n % 3}") for n in range(PARTITIONS)}
    append_all(
        table_at(key_hashes.lake / "orders_members"), [stored(1, assignment=assignment(1, owners))]
    )
    made.ran[README] = made.run(README)
    # Twice, so that what failed is tried again and given up before the page's commands run.
    made.run(INDIVIDUAL_COMMITS, ("python",))
    time.sleep(1)
    made.ran[INDIVIDUAL_COMMITS] = made.run(INDIVIDUAL_COMMITS)
    with schema_registry() as registry:
        key_hashes.add(REGISTRY, registry.url)
        yield made
    topics.delete_topic(TOPIC)
    topics.delete_topic(WRITTEN)
    for name in BESIDE:
        topics.delete_topic(name)


@pytest.fixture(scope="module")
def _recipes(pages: Pages, topics: Topics) -> Iterator[None]:
    try:
        jars.resolve(jars.spark_kafka())
    except KeyrangeError as failure:
        pytest.skip(f'the jars of format("kafka") cannot be had: {failure}')
    with recipe_stage(topics) as registry:
        pages.key_hashes.add(REGISTRY, registry)
        yield


@pytest.mark.usefixtures("_recipes")
def test_recipes_run_and_end_as_they_say(pages: Pages, topics: Topics) -> None:
    run_whole(pages, RECIPES)
    check_recipes(topics, pages.key_hashes.lake, TOPIC, ahead=PARTITIONS)


@pytest.mark.parametrize(
    "path", [each for each in DOCUMENTS if each != RECIPES], ids=lambda path: path.name
)
def test_what_is_shown_runs(pages: Pages, path: Path) -> None:
    run_whole(pages, path)


def run_whole(pages: Pages, path: Path) -> None:
    runnable = [s for s in snippets(path) if s.language in ("python", "bash", "sql")]
    ran = pages.ran[path] if path in pages.ran else pages.run(path)
    assert ran == len([s for s in runnable if "no-test" not in s.marks])


def test_a_page_leaves_the_session_as_it_was(spark: SparkSession) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    before = dict(spark.conf.getAll)
    with session_as_it_was(spark):
        spark.conf.set(name, "true")
        assert spark.conf.get(name) == "true"
    assert dict(spark.conf.getAll) == before
