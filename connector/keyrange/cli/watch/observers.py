"""What `keyrange watch` looks at: a thread for each source, so that one that hangs holds up nobody.

Rule of this file: nothing of Spark. Each source is read by the functions of the command that is
made for it; here is only when, and what is kept of the last time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from keyrange.cli.commits.commit_source import dead_letters_of, errors_of
from keyrange.cli.commits.document import describe as describe_commits
from keyrange.cli.members.document import ask, open_table
from keyrange.cli.members.document import describe as describe_members
from keyrange.cli.source_options import SERVERS, names, of_kafka, storage_of, value_of
from keyrange.cli.values import ms_of, now
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table import commit_admin
from keyrange.kafka.open_transactions import HeldBack, held_back
from keyrange.model.offsets import LATEST, TopicPartition
from keyrange.observing.model.query_progress import QueryProgress, read_query_progress
from keyrange.observing.progress_file import read_last
from keyrange.options import parse_options
from keyrange.storage.checkpoint_files import load_progress, open_directory
from keyrange.storage.directory import Directory
from keyrange.storage.model.spark_log import CheckpointProgress
from keyrange.text.escaping import one_line

if TYPE_CHECKING:
    from keyrange.kafka.cluster import Cluster

T = TypeVar("T")

_TEXT_CHARACTERS_MAX: Final = 300
PROGRESSES: Final = 60
# What the query calls the tables that options of a command name.
_TABLES: Final = {"commits": "committable", "members": "membertable", "letters": "deadlettertable"}
_NO_PROGRESS: Final = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    KeyrangeError,
)


@dataclass(frozen=True, slots=True)
class Where:
    """Where to look. `named` are options of the source; tables and file are "" where none are."""

    checkpoint: str
    named: Mapping[str, str] = field(default_factory=dict)
    progress: str = ""
    commits: str = ""
    members: str = ""
    group: str = ""

    def has(self, option: str) -> bool:
        return names(self.named, option)

    @property
    def asks_kafka(self) -> bool:
        return self.has(SERVERS)

    @property
    def asks_brokers(self) -> bool:
        return self.has("kafka.admin.bootstrap.servers")


def tables(named: Mapping[str, str], **given: str) -> dict[str, str]:
    """The query's tables as options of the command name them, else its own options."""
    return {name: value_of(named, _TABLES[name], path) for name, path in given.items()}


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a source said last, and how long ago; `failure` is why it did not answer the last time,
    and `waiting_ms` for how long it has been asked by now."""

    value: T | None = None
    age_ms: int = 0
    failure: str = ""
    waiting_ms: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """Where partitions end, those among them that their topics were given since; which of those
    that were asked for are gone, and what is `held` back by open transactions."""

    offsets: Mapping[TopicPartition, int]
    gone: tuple[TopicPartition, ...] = ()
    held: Mapping[TopicPartition, HeldBack] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToldBatch:
    """A batch as its progress says."""

    progress: QueryProgress
    done_ms: int


@dataclass(frozen=True, slots=True)
class Answers:
    """What all sources said; nothing of those that are not asked."""

    checkpoint: Answer[CheckpointProgress]
    progress: Answer[list[ToldBatch]] = Answer()
    broker: Answer[Ends] = Answer()
    commits: Answer[dict[str, Any]] = Answer()
    members: Answer[dict[str, Any]] = Answer()
    volumes: Answer[dict[str, Any]] = Answer()

    def each(self) -> Iterable[tuple[str, Answer[Any]]]:
        return ((each.name, getattr(self, each.name)) for each in fields(self))


class Source(Generic[T]):
    """Asks one thing again and again, each time in a thread that ends with the answer."""

    def __init__(self, name: str, ask: Callable[[], T]) -> None:
        self.name = name
        self._ask = ask
        self._change = threading.Condition()
        self._asked_at: float | None = None
        self._answered_at = 0.0
        self._value: T | None = None
        self._failure = ""

    def ask(self) -> None:
        """Ask, unless the last answer is still due."""
        with self._change:
            if self._asked_at is not None:
                return
            self._asked_at = time.monotonic()
        threading.Thread(target=self._run, name=f"ask-{self.name}", daemon=True).start()

    def wait(self, until: float) -> None:
        """Until there is an answer, or a time of `time.monotonic()`."""
        with self._change:
            left_s = max(until - time.monotonic(), 0)
            self._change.wait_for(lambda: self._asked_at is None, left_s)

    @property
    def answer(self) -> Answer[T]:
        with self._change:
            now = time.monotonic()
            waiting_s = 0.0 if self._asked_at is None else now - self._asked_at
            age_s = now - self._answered_at if self._value is not None else 0.0
            return Answer(self._value, int(age_s * 1000), self._failure, int(waiting_s * 1000))

    def _run(self) -> None:
        value, failure = self._try()
        with self._change:
            if not failure:
                self._value, self._answered_at = value, time.monotonic()
            self._failure, self._asked_at = failure, None
            self._change.notify_all()

    def _try(self) -> tuple[T | None, str]:
        try:
            return self._ask(), ""
        except KeyrangeError as failure:
            # Whole: the remedy stands at its end.
            return None, one_line(" ".join(str(failure).split()))
        except Exception as failure:
            # Whatever a library raises of a file or a network: the view goes on without it.
            whole = " ".join(one_line(f"{type(failure).__name__}: {failure}").split())
            is_long = len(whole) > _TEXT_CHARACTERS_MAX
            return None, f"{whole[:_TEXT_CHARACTERS_MAX]} ..." if is_long else whole


def checkpoint_source(
    location: str, storage: Mapping[str, str]
) -> Callable[[], CheckpointProgress]:
    """Reads a checkpoint, again and again: a planned batch is a file that does not change any more.

    Raises INVALID_CHECKPOINT_PATH, now and with each reading."""
    return partial(load_progress, open_directory(location, storage, _Remembering))


class _Remembering(Directory):
    def __init__(self, location: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(location, settings)
        self._known: dict[str, bytes] = {}

    def numbered(self, directory: str) -> list[int]:
        found = super().numbered(directory)
        if directory == "offsets":
            # The last one may be written just now.
            there = {f"offsets/{number}" for number in found[:-1]}
            self._known = {path: each for path, each in self._known.items() if path in there}
        return found

    def read(self, path: str) -> bytes:
        if not path.startswith("offsets/"):
            return super().read(path)
        if path not in self._known:
            self._known[path] = super().read(path)
        return self._known[path]


class EndsSource:
    """Where the partitions of a checkpoint end by now, over connections that are kept."""

    def __init__(
        self, named: Mapping[str, str], wanted: Callable[[], Mapping[TopicPartition, str]]
    ) -> None:
        self._named = named
        self._wanted = wanted
        self._cluster: Cluster | None = None

    def __call__(self) -> Ends:
        """`wanted` are partitions with the ids of their topics, "" where there is none. Raises what
        the source raises."""
        from keyrange.kafka.cluster import Cluster

        wanted = self._wanted()
        topics = sorted({partition.topic for partition in wanted})
        if self._cluster is None:
            named = {**of_kafka(self._named), "subscribe": ",".join(topics) or "none"}
            self._cluster = Cluster(parse_options(named, "batch").client)
        try:
            view = self._cluster.describe(topics, may_miss=topics)
            # Where either side knows no id of the topic, its name has to do.
            ids = {each.topic: topic_id for each, topic_id in wanted.items()}
            there = {
                partition
                for partition in view.partitions()
                if view.topic_id(partition.topic) in ("", ids[partition.topic])
                or not ids[partition.topic]
            }
            if names(self._named, "assign"):
                there &= wanted.keys()
            found = self._cluster.list_offsets(view, dict.fromkeys(sorted(there), LATEST))
            held = held_back(self._cluster, view, there)
        except KeyrangeError:
            self._cluster.close()
            self._cluster = None
            raise
        ends = {partition: at for partition, (at, _) in found.items()}
        return Ends(ends, tuple(sorted(wanted.keys() - there)), held)


def read_told(path: str, query_id: str) -> list[ToldBatch]:
    """The last batches of a query by its progress file, oldest first. Lines that are no progress
    are left out. Raises OSError, and what they are where there are no others."""
    found, unreadable = told_of(read_last(path, PROGRESSES, query_id))
    if unreadable is not None and not found:
        raise unreadable
    return found


def told_of(documents: Iterable[Mapping[str, Any]]) -> tuple[list[ToldBatch], Exception | None]:
    """The batches of keyrange among progresses, and why the last one of the others is none."""
    found = []
    unreadable: Exception | None = None
    for document in documents:
        try:
            if progress := read_query_progress(document):
                found.append(ToldBatch(progress, ms_of(progress.began) + progress.duration_ms))
        except _NO_PROGRESS as failure:
            unreadable = failure
    return found, unreadable


class CommitsSource:
    """The document of `keyrange commits show`; `source` says of whose commits, "" for the last
    one's."""

    def __init__(self, where: Where, source: Callable[[], str] = str) -> None:
        self._where, self._source = where, source
        self._commits: Any = None
        # As of a commit: a batch that gives records up commits behind their letters.
        self._dead: tuple[int, dict[str, int]] = (-1, {})

    def __call__(self) -> dict[str, Any]:
        where = self._where
        if self._commits is None:
            storage = storage_of(where.named)
            of = (where.group, self._source())
            self._commits = commit_admin.open_commits(where.commits, *of, storage)
        try:
            known = self._commits.table.known()
            errors = errors_of(self._commits, where.named)
            last = self._commits.last(known.seq)
            if self._dead[0] != known.seq:
                dead = dead_letters_of(self._commits, where.named, last.group if last else None)
                self._dead = known.seq, dead
            return describe_commits(known, last, {}, now(), errors, self._dead[1])
        except BaseException:
            # Another source may write here by now.
            self._commits = None
            raise


def read_members(where: Where) -> dict[str, Any]:
    """The document of `keyrange members list`, with who is there now where a broker is named."""
    members = open_table(where.members, where.named)
    asked = ask(where.named, members.last) if where.asks_kafka else None
    return describe_members(members.last, members.waiting, now(), asked)
