"""Nexmark's events, by number and seed alone, and its queries in keyrange and in Spark.

Of 50 events one is a person, three are auctions and 46 are bids. Half of the bids go to a hot
auction, one in 100; three of four bids and of four auctions are of a hot person, one in 100. Other
bids go to the last 100 auctions, and other persons are among the last 1,000; ids may be a little
ahead of those that are there. The generator of Apache Beam's Nexmark has these numbers.

Bids, auctions and persons are in topics of their own. A key's records are in one partition, and
keyrange shuffles nothing. So topics are keyed as a query groups: bids by auction (q5, q7) or by
bidder (q11, q12), persons by their ids and auctions by their sellers', in partitions alike, which
share the state of their keys (q3, q8). The greatest of all keys of a window is looked for in
the table of what each key has (`best_of_keys`), and is part of the measured time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import keyrange
from bench import queries
from bench.queries import PARTITIONS, bounds, by_time, json_of
from bench.sessions import BEGAN_MS

BID: Final = "at long, auction long, bidder long, price long"
TRADER: Final = (
    "at long, person struct<name string, city string, state string>, "
    "auction struct<id long, category int>"
)
EVENTS_PER_MS: Final = 10
DELAY: Final = "4 seconds"
_DISORDER_MS: Final = 2_000
_FIRST_ID: Final = 1_000
_HOT: Final = 100
_AHEAD: Final = 10
_LOCAL: Final = ("OR", "ID", "CA")
_CATEGORY: Final = 10
_TIME: Final = keyrange.EventTime("at", delay=DELAY)
_TABLE: Final = ("key", "window_start", "window_end")
Select = Callable[[pa.Table], pa.Table]


def _at(event: str) -> str:
    late = f"pmod(hash({event}, 7), {_DISORDER_MS})"
    return f"{BEGAN_MS} + CAST({event} DIV {EVENTS_PER_MS} AS LONG) - {late}"


def _person(epoch: str, hot: int) -> str:
    """The id of a person: the hot one, which is `hot` behind each hundredth, or a recent one."""
    recent = f"least({epoch} + 1, 1000)"
    some = f"({epoch} + 1 - {recent} + pmod(hash(id, 3), {recent} + {_AHEAD}))"
    is_hot = "pmod(hash(id, 4), 4) > 0"
    return f"({_FIRST_ID} + IF({is_hot}, {epoch} DIV {_HOT} * {_HOT} + {hot}, {some}))"


def bids(spark: SparkSession, rows: int, by: str) -> DataFrame:
    """Bids in the order of their numbers, keyed `by` auction or bidder."""
    epoch = "(id DIV 46)"
    last = f"({epoch} * 3 + 2)"
    flying = f"least({last}, 100)"
    some = f"({last} - {flying} + pmod(hash(id, 2), {flying} + 1 + {_AHEAD}))"
    auction = f"({_FIRST_ID} + IF(pmod(hash(id, 1), 2) > 0, {last} DIV {_HOT} * {_HOT}, {some}))"
    made = spark.range(0, rows, 1, 1).selectExpr(
        f"{_at(f'({epoch} * 50 + 4 + id % 46)')} AS at",
        f"{auction} AS auction",
        f"{_person(epoch, 1)} AS bidder",
        "CAST(round(pow(10, pmod(hash(id, 5), 1000000) / 1e6 * 6) * 100) AS LONG) AS price",
        "'https://auctions.example/item' AS url",
    )
    return _keyed(made, by, "at, auction, bidder, price, url")


def traders(spark: SparkSession, rows: int, kind: str) -> DataFrame:
    """Persons by their ids, or auctions by those of their sellers: one and three of four rows."""
    epoch, place = "(id DIV 4)", "(id % 4)"

    def some(values: tuple[str, ...], seed: int) -> str:
        words = ", ".join(f"'{each}'" for each in values)
        return f"element_at(array({words}), pmod(hash(id, {seed}), {len(values)}) + 1)"

    cities = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Seattle")
    person = (
        f"named_struct('name', concat('person ', {epoch}), 'city', {some(cities, 1)},"
        f" 'state', {some(('AZ', 'CA', 'ID', 'OR', 'WA', 'WY'), 2)})"
    )
    auction = (
        f"named_struct('id', {_FIRST_ID} + {epoch} * 3 + {place} - 1,"
        f" 'category', {_CATEGORY} + pmod(hash(id, 8), 5))"
    )
    is_person = kind == "person"
    made = (
        spark.range(0, rows, 1, 1)
        .where(f"({place} = 0) = {is_person}")
        .selectExpr(
            f"{_at(f'({epoch} * 50 + {place})')} AS at",
            f"{f'{_FIRST_ID} + {epoch}' if is_person else _person(epoch, 0)} AS of",
            f"{person if is_person else auction} AS {kind}",
            "rpad('', 100, 'in good condition, ') AS note",
        )
    )
    return _keyed(made, "of", f"at, {kind}, note")


def _keyed(frame: DataFrame, by: str, fields: str) -> DataFrame:
    return frame.selectExpr(
        f"CAST({by} AS STRING) AS key",
        f"to_json(struct({fields})) AS value",
        f"CAST(pmod(hash({by}), {PARTITIONS}) AS INT) AS partition",
    )


def last() -> str:
    """With it the watermark passes all windows."""
    return f'{{"at":{BEGAN_MS + 10**9}}}'


@dataclass(frozen=True)
class Query:
    """A query of the records of topics in two ways. `select`: from the table that keyrange writes
    to the result of `columns`, which Spark's table has."""

    topics: tuple[str, ...]
    ours: queries.Side
    theirs: queries.Side
    columns: tuple[str, ...]
    select: Select = lambda table: table
    # Of windows by the clock only what they are in all is the same in two runs.
    is_by_clock: bool = False


def best_of_keys(table: pa.Table, by: str) -> pa.Table:
    """Of each window the rows with the greatest value."""
    most = table.group_by("window_start").aggregate([(by, "max")])
    joined = table.join(most, "window_start")
    return joined.filter(pc.equal(joined[by], joined[f"{by}_max"])).select(table.column_names)


def _job(made: Any, schema: str) -> queries.Side:
    typed = {"keyFormat": "string", "valueFormat": "json", "valueSchema": schema}
    return queries.job(made, options=typed, time=_TIME)


def _read(records: DataFrame, schema: str) -> DataFrame:
    return by_time(json_of(records, schema), DELAY)


def _hot_items(records: DataFrame) -> DataFrame:
    window = F.window("at", "10 seconds", "2 seconds").alias("window")
    counted = _read(records, BID).groupBy("key", window).agg(F.count("*").alias("n"))
    item = F.struct("key", "n").alias("item")
    of_window = counted.groupBy("window").agg(F.max("n").alias("most"), F.collect_list(item))
    rows = of_window.toDF("window", "most", "items").select("window", "most", F.explode("items"))
    best = rows.where("col.n = most")
    return best.select(F.col("col.key").alias("key"), *bounds(), F.col("most").alias("n"))


def _highest_bid(records: DataFrame) -> DataFrame:
    bid = F.max(F.struct("price", "bidder", "key")).alias("bid")
    found = _read(records, BID).groupBy(F.window("at", "10 seconds").alias("window")).agg(bid)
    bid_of = [F.col(f"bid.{name}").alias(name) for name in ("key", "price", "bidder")]
    return found.select(bid_of[0], *bounds(), *bid_of[1:])


def highest(rows: pa.RecordBatch, groups: pa.Array, windows: pa.RecordBatch) -> pa.RecordBatch:
    """The highest bid of each window; of equal ones that of the greatest bidder."""
    price, bidder = (rows.column(name).to_numpy() for name in ("price", "bidder"))
    best = np.empty(windows.num_rows, np.int64)
    order = np.lexsort((bidder, price))
    # The last one that is written stays.
    best[groups.to_numpy()[order]] = order
    taken = pa.array(best)
    columns = [rows.column(name).take(taken) for name in ("price", "bidder")]
    return pa.RecordBatch.from_arrays(columns, names=["price", "bidder"])


def _highest_of_keys(table: pa.Table) -> pa.Table:
    """Of equal bids the one that comes last in the order of Spark's structures."""
    found = best_of_keys(best_of_keys(table, "price"), "bidder")
    return best_of_keys(found, "key")


def _new_users(records: DataFrame) -> DataFrame:
    window = F.window("at", "10 seconds").alias("window")
    found = _read(records, TRADER).groupBy("key", window)
    counted = found.agg(F.max("person.name").alias("name"), F.count("auction.id").alias("sales"))
    return counted.where("name IS NOT NULL AND sales > 0").select("key", *bounds(), "name", "sales")


def _sellers(table: pa.Table) -> pa.Table:
    return table.filter(pc.and_(table["name"].is_valid(), pc.greater(table["sales"], 0)))


def _user_sessions(records: DataFrame) -> DataFrame:
    window = F.session_window("at", "10 seconds").alias("window")
    found = _read(records, BID).groupBy("key", window).agg(F.count("*").alias("n"))
    return found.select("key", *bounds(), "n")


def _by_clock(records: DataFrame) -> DataFrame:
    timed = records.select(F.col("key").cast("string"), F.current_timestamp().alias("at"))
    window = F.window("at", "10 seconds").alias("window")
    found = timed.withWatermark("at", "0 seconds").groupBy("key", window)
    return found.agg(F.count("*").alias("n")).select("key", *bounds(), "n")


SUGGESTED: Final = "key string, name string, city string, state string, auction long"


def suggest(record: Any, state: Any) -> Any:
    """Auctions of one category whose seller lives near; those that come before their seller
    wait."""
    person, auction = record.value.person, record.value.auction
    if person is not None:
        state.person.update((person.name, person.city, person.state))
        waiting = state.sales.get()
        state.sales.clear()
        is_near = person.state in _LOCAL
        return [(record.key, *person, number) for number in waiting] if is_near else None
    if auction is None or auction.category != _CATEGORY:
        return None
    seller = state.person.get()
    if seller is None:
        state.sales.append(auction.id)
        return None
    return (record.key, *seller, auction.id) if seller[2] in _LOCAL else None


_SUGGEST: Final = {
    "person": keyrange.ValueState("name string, city string, state string"),
    "sales": keyrange.ListState("auction long"),
}


def _suggested(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    """Spark joins the two streams."""
    known = json_of(persons, TRADER).where("person IS NOT NULL").select("key", "person.*")
    near = known.where(F.col("state").isin(*_LOCAL))
    sold = json_of(auctions, TRADER).where(f"auction.category = {_CATEGORY}")
    return near.join(sold.select("key", F.col("auction.id").alias("auction")), "key")


_TRADERS: Final = ("persons", "auctions")
# What a query reads of one and of the other at a time.
_SHARES: Final = (0.25, 0.75)
QUERIES: Final = {
    "q3": Query(
        _TRADERS,
        queries.job(
            *(suggest, SUGGESTED, "record", _SUGGEST),
            options={"keyFormat": "string", "valueFormat": "json", "valueSchema": TRADER},
        ),
        queries.spark_side(_suggested, _SHARES),
        ("key", "name", "city", "state", "auction"),
    ),
    "q5": Query(
        ("bids_by_auction",),
        _job(keyrange.windows.hopping("10s", "2s").count(n="*"), BID),
        queries.spark_side(_hot_items),
        (*_TABLE, "n"),
        lambda table: best_of_keys(table, "n"),
    ),
    "q7": Query(
        ("bids_by_auction",),
        _job(
            keyrange.windows.tumbling("10s").apply(
                highest, "price long, bidder long", "price", "bidder"
            ),
            BID,
        ),
        queries.spark_side(_highest_bid),
        (*_TABLE, "price", "bidder"),
        _highest_of_keys,
    ),
    "q8": Query(
        _TRADERS,
        _job(
            keyrange.windows.tumbling("10s").max(name="person.name").count(sales="auction.id"),
            TRADER,
        ),
        queries.spark_side(_new_users),
        (*_TABLE, "name", "sales"),
        _sellers,
    ),
    "q11": Query(
        ("bids_by_bidder",),
        _job(keyrange.windows.session("10s").count(n="*"), BID),
        queries.spark_side(_user_sessions),
        (*_TABLE, "n"),
    ),
    "q12": Query(
        ("bids_by_bidder",),
        queries.job(
            keyrange.windows.tumbling("10s").count(n="*"),
            options={"keyFormat": "string"},
            time=keyrange.ProcessingTime(),
        ),
        queries.spark_side(_by_clock),
        (*_TABLE, "n"),
        is_by_clock=True,
    ),
}
