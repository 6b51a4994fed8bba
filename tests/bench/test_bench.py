"""The benchmark runs in its smallest form and yields every figure that it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from project.bench_runs import CI, bench, tiny_figures

sys.path.insert(0, str(CI))

from bench.__main__ import main as bench_main
from bench.groups import ingest, sink, upserts, values
from bench.groups.read import GROUP, cells
from bench.groups.scale import GROUP as SCALE
from bench.registry import Bench, Scale
from bench.tables import TABLES

FIELDS = {"group", "name", "value", "unit", "min", "max", "runs", "samples"}
WAYS = ("", ".per_range", ".grouped")
READ = {
    f"read.{cell}.{figure}"
    for cell in ("1KB.lz4",)
    for figure in (
        "vs_jvm",
        "vs_jvm_tuned",
        "vs_ceiling",
        "keyrange.mrec_per_second",
        "jvm.mrec_per_second",
        "jvm_tuned.mrec_per_second",
        "ceiling.mrec_per_second",
    )
}
LATENCY = {
    f"latency.{name}.{figure}"
    for name in ("p50", "p99")
    for figure in ("vs_jvm", "keyrange.ms", "jvm.ms")
} | {"latency.idle.core_share"}
LATENCY_DELTA = {
    f"latency.delta.{share}.{figure}"
    for share in ("p50", "p99")
    for figure in ("vs_jvm", "keyrange.ms", "jvm.ms")
}

QUERY = {
    *(f"query.start.{side}seconds" for side in ("", "individual.", "jvm.")),
    *(f"query.available_now.{figure}" for figure in ("vs_jvm", "seconds", "jvm.seconds")),
}

TINY_INGEST = {
    "ingest.delta.1KB.lz4.vs_floor",
    "ingest.delta.1KB.lz4.floor.mrec_per_second",
    *(
        f"{cell}.{figure}"
        for cell in ("ingest.delta.1KB.lz4", "ingest.json.200B")
        for figure in ("vs_jvm", "keyrange.mrec_per_second", "jvm.mrec_per_second")
    ),
    "process.record.vs_jvm_udf",
    *(f"process.record.{side}.mrec_per_second" for side in ("keyrange", "jvm_udf", "jvm_pandas")),
}

WORKER = {
    "worker.peak_rss.mb",
    "worker.peak_rss.writing.mb",
    "worker.peak_rss.50mb_records.mb",
    "worker.cold_start.seconds",
    "worker.cold_start.cached.seconds",
}

KEYRANGE = {
    "keyrange.keyed.vs_jvm_repartition",
    "keyrange.keyed.seconds",
    "keyrange.keyed.mapped_in_spark.vs_jvm_repartition",
    "keyrange.keyed.mapped_in_spark.seconds",
    "keyrange.keyed.jvm.seconds",
    "keyrange.shuffle.bytes",
    "keyrange.shuffle.jvm.bytes",
    "keyrange.speedup.1p",
    "keyrange.speedup.ceiling",
    "keyrange.throughput.1p16r.vs_partition",
    "keyrange.throughput.4p16r.vs_partition",
    *(f"keyrange.throughput.{side}.mrec_per_second" for side in ("1p16r", "4p16r", "partition")),
    *(f"keyrange.amplification.{count}{way}" for count in (4, 16, 64) for way in WAYS),
}

COMMITS = {
    *(f"commits.{which}{share}.ms" for which in ("", "after_50k.") for share in ("p50", "p99")),
    "commits.beside_compaction.p99.ms",
    "commits.after_50k.vs_50",
    "commits.startup_50k.seconds",
    "commits.startup.imports.seconds",
}

COMMITS_SCALE = {
    *(
        f"commits.scale.10000x4{share}{step}.ms"
        for share in ("", ".hundredth")
        for step in ("", ".plan", ".verdict", ".commit")
    ),
    "commits.scale.open.10000x4.seconds",
    "commits.scale.planning.10000x16.rss_mb",
}

MEMBERS = {
    "members.plan.ms",
    "members.bind.ms_per_task",
    "members.owner_share",
    "members.process.rss_mb",
    "members.process.core_share",
    *(f"members.batch.{side}.ms" for side in ("off.1", "prefer.2", "prefer.4")),
    *(
        f"members.rolling.{figure}{kind}"
        for figure in ("moved_ranges", "reassignments")
        for kind in ("", ".dynamic")
    ),
}

VOLUMES = {
    *(f"volumes.check_1000.{figure}" for figure in ("cpu_seconds", "stretch.ms")),
    *(f"volumes.batch_delay.{share}ms" for share in ("p50.", "", "max.")),
    *(
        f"volumes.plan.{side}.{share}.ms"
        for side in ("alone", "beside")
        for share in ("p50", "p99", "max")
    ),
    "volumes.longest_mute.seconds",
}

CONSUMER = {
    *(f"consumer.{side}.vs_kafka_python" for side in ("arrow", "records")),
    *(f"consumer.{side}.mrec_per_second" for side in ("arrow", "records", "kafka_python")),
}
TRANSACTION = {f"consumer.transaction{each[8:]}".replace("arrow.vs", "vs") for each in CONSUMER}

THROUGHPUT = {
    *(f"commits.throughput.spark_sink.vs_{side}" for side in ("batch", "materialized")),
    "commits.throughput.record.spark_sink.vs_batch",
    "commits.throughput.materialization.seconds_per_batch",
    *(
        f"commits.throughput.{side}.mrec_per_second"
        for side in (
            "batch",
            "materialized",
            "individual.spark_sink",
            "batch.record",
            "individual.record.spark_sink",
        )
    ),
}

DECOMPRESS = {f"decompress.{codec}.mb_per_second" for codec in ("snappy", "lz4", "zstd")}
COMMITS_WORK = {name for row in TABLES["commits_work"].rows.values() for name in row}

SINK = {"sink.encode.mrec_per_core"} | {
    f"sink.{form}.{figure}"
    for form, library in sink.LIBRARIES.items()
    for figure in (f"vs_{library}", "keyrange.mrec_per_core", f"{library}.mrec_per_core")
}
LATENCY_KAFKA = {each.replace("latency.delta", "kafka_to_kafka.latency") for each in LATENCY_DELTA}

PARTS = {"fetch.mb_per_second", "fetch.wall.mb_per_second", "decode.mrec_per_second"} | {
    f"task.1KB.lz4.{part}us"
    for part in (
        *("fetch.", "scan.", "decompress.", "index.", "gather.", "handover.", "rest."),
        *("write.", "snappy.", ""),
    )
}

SLOW_KEY = {
    f"commits.slow_key.{figure}"
    for share in ("p50", "p99")
    for figure in (f"{share}.vs_normal", f"{share}.ms", f"normal.{share}.ms")
}
VALUE_SIDES = {
    "ingest.avro.200B": ("vs_jvm", "jvm"),
    "ingest.protobuf.200B": ("vs_python", "jvm_python"),
    "ingest.json.1KB": ("vs_jvm", "jvm"),
    "process.typed": ("vs_jvm_udf", "jvm_udf"),
    "read.json.200B": ("vs_jvm", "jvm"),
    "ingest.whole.1KB.lz4": ("vs_script", "script"),
    "ingest.whole.200B.none": ("vs_script", "script"),
}
VALUES = {
    f"{prefix}.{figure}"
    for prefix, (versus, other) in VALUE_SIDES.items()
    for figure in (
        versus,
        "keyrange.mrec_per_second",
        f"{other}.mrec_per_second",
        "peak_rss.mb",
    )
}
UPSERTS = {
    f"upsert.200B.{name}"
    for name in ("vs_jvm", "keyrange.mrec_per_second", "jvm.mrec_per_second", "peak_rss.mb")
}
STATE_READER = {
    *("state.reader.get.p50.ms", "state.reader.get.p99.ms", "state.serve.requests_per_second"),
    "state.serve.requests_per_core_second",
}
# Groups of which every figure is above nothing.
PROMISED = {
    "commits": COMMITS,
    "commits_scale": COMMITS_SCALE,
    "commits_slow_key": SLOW_KEY,
    "query": QUERY,
    "parts": PARTS,
    "consumer": CONSUMER,
    "consumer_transaction": TRANSACTION,
    "values": VALUES,
    "upserts": UPSERTS,
    "plan": {"plan.10k.seconds", "plan.10k.batch.seconds"},
}


@pytest.mark.broker
@pytest.mark.spark
def test_the_tiny_benchmark_yields_its_figures(tmp_path: Path) -> None:
    """Of a group with Spark and a broker, and of three that need neither."""
    out = tmp_path / "figures.json"
    chosen = ("read", "decompress", "sink", "commits_work")
    finished = bench("--tiny", *(f"--only={name}" for name in chosen), "--out", str(out))
    assert finished.returncode == 0, finished.stderr[-4000:]
    document = json.loads(out.read_text())
    assert document["machine"]["cores"] > 0
    assert document["versions"]["pyspark"]
    assert (document["run"]["scale"], document["run"]["repetitions"]) == ("tiny", 1)
    assert document["run"].keys() >= {"started", "commit", "changed"}
    groups = [(group["name"], group["failed"]) for group in document["groups"]]
    assert groups == [(name, False) for name in chosen]
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures.keys() == READ | DECOMPRESS | SINK | COMMITS_WORK
    for name, figure in figures.items():
        assert set(figure) == FIELDS
        assert figure["group"].partition("_")[0] == name.partition(".")[0]
        assert 0 < figure["min"] <= figure["value"] <= figure["max"]
        assert figure["runs"] == len(figure["samples"]) == 1
        assert name in finished.stdout


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_tiny_benchmark_of_key_ranges_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "keyrange", timeout_s=580)
    assert figures.keys() == KEYRANGE
    # What is counted and not timed holds at any size.
    assert figures["keyrange.shuffle.bytes"]["value"] == 0
    assert figures["keyrange.shuffle.jvm.bytes"]["value"] > 0
    for count in (4, 16, 64):
        ways = [figures[f"keyrange.amplification.{count}{way}"]["value"] for way in WAYS]
        assert ways[0] == max(ways)
        # Every byte is sent once at least. Beside it: the sample that a plan is made by.
        assert min(ways) >= 1.0


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("group", PROMISED)
def test_the_tiny_benchmark_of_a_group_yields_its_figures(tmp_path: Path, group: str) -> None:
    figures = tiny_figures(tmp_path, group, timeout_s=580)
    assert figures.keys() == PROMISED[group]
    assert all(each["value"] > 0 for each in figures.values())


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_tiny_benchmark_of_queries_that_commit_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "commits_throughput", timeout_s=580)
    assert figures.keys() == THROUGHPUT
    # What keeping the output costs may drown in noise where there is hardly any.
    costs = "commits.throughput.materialization.seconds_per_batch"
    assert all(each["value"] > 0 for name, each in figures.items() if name != costs)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_tiny_benchmark_of_kafka_to_delta_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "ingest", "latency", "latency_delta", "worker", timeout_s=580)
    assert figures.keys() == TINY_INGEST | LATENCY | LATENCY_DELTA | WORKER
    # Of so few records a cold start may take no longer than a warm one, and an idle process may use
    # less than the clock of its CPU time can tell.
    small = {f"worker.cold_start.{name}" for name in ("seconds", "cached.seconds")}
    small |= {"latency.idle.core_share"}
    assert all(each["value"] > 0 for name, each in figures.items() if name not in small)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_tiny_benchmark_of_kafka_to_kafka_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "sink_kafka", "latency_kafka", timeout_s=580)
    assert figures.keys() > LATENCY_KAFKA | {"sink.kafka.200B.none.vs_jvm"}
    assert all(each["value"] > 0 for each in figures.values())


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tiny_benchmark_of_members_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "members", timeout_s=880)
    assert figures.keys() == MEMBERS
    # What is counted and not timed holds at any size.
    assert figures["members.rolling.moved_ranges"]["value"] == 0
    assert figures["members.rolling.reassignments"]["value"] == 0


@pytest.mark.broker
@pytest.mark.slow
def test_the_tiny_benchmark_of_scale_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "scale", timeout_s=580)
    assert SCALE.targets.keys() <= figures.keys()
    assert {name for row in TABLES["scale"].rows.values() for name in row} == figures.keys()
    assert all(each["value"] > 0 for each in figures.values())


@pytest.mark.broker
@pytest.mark.slow
def test_the_tiny_benchmark_of_volumes_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "volumes", timeout_s=580)
    assert figures.keys() == VOLUMES


def test_every_ratio_and_all_memory_of_typed_values_has_a_target_and_a_place_in_the_table() -> None:
    for group, figures in ((values.GROUP, VALUES), (upserts.GROUP, UPSERTS)):
        rates = {name for name in figures if name.endswith(".mrec_per_second")}
        assert group.targets.keys() == figures - rates
        assert {name for row in TABLES[group.name].rows.values() for name in row} == figures


def test_at_any_other_scale_every_size_is_read_with_every_codec() -> None:
    sizes, codecs = ("200B", "1KB"), ("none", "lz4", "zstd")
    every = [f"read.{size}.{codec}" for size in sizes for codec in codecs]
    scales: tuple[Scale, ...] = ("full", "quick")
    for scale in scales:
        found = [cell.prefix for cell in cells(Bench("read", scale, "", Path()))]
        assert {name.rpartition(".")[0] for name in GROUP.targets} == set(found)
        assert found == every


def ingest_figures() -> set[str]:
    """What the group yields at any other scale than the smallest."""
    found = set()
    for cell in ingest.cells(Bench("ingest", "full", "", Path())):
        sides = [*cell.sides, *(["floor"] if cell.has_floor else [])]
        found |= {f"{cell.prefix}.{side}.mrec_per_second" for side in sides}
        found |= {f"{cell.prefix}.{cell.versus}"}
        found |= {f"{cell.prefix}.vs_floor"} if cell.has_floor else set()
    return found


def test_at_any_other_scale_all_sizes_and_codecs_are_written_that_have_a_target() -> None:
    assert ingest.GROUP.targets.keys() <= ingest_figures()
    assert len(ingest.GROUP.targets) == 8


def test_every_figure_of_a_table_is_one_that_its_group_yields() -> None:
    yielded = {
        "latency": LATENCY,
        "latency_delta": LATENCY_DELTA,
        "latency_kafka": LATENCY_KAFKA,
        "worker": WORKER,
        "ingest": ingest_figures(),
        "ingest_floor": ingest_figures(),
        "keyrange": KEYRANGE,
        "commits": COMMITS,
        "members": MEMBERS,
        "volumes": VOLUMES,
        "consumer": CONSUMER,
        "consumer_transaction": TRANSACTION,
        "state_reader": STATE_READER,
        "commits_throughput": THROUGHPUT,
        "commits_slow_key": SLOW_KEY,
        "decompress": DECOMPRESS,
        "parts": PARTS,
        "task": PARTS,
    }
    for group, names in yielded.items():
        rows = TABLES[group].rows.values()
        assert {name for row in rows for name in row} <= names


def test_an_unknown_group_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.sh", "--only", "nothing"])
    with pytest.raises(SystemExit) as refused:
        bench_main()
    assert refused.value.code == 2
    told = capsys.readouterr().err
    assert "'nothing'" in told
    assert "latency" in told
