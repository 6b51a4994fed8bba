"""The tables of typed values, of scripts and of upserts."""

from __future__ import annotations

from collections.abc import Mapping

from bench.table import Table


def _values() -> Table:
    rows = {
        "Avro by a registry, 200 B; `from_avro`": ("ingest.avro.200B", "vs_jvm", "jvm"),
        "Protobuf by a registry, 200 B; `mapInArrow` with Google's library": (
            *("ingest.protobuf.200B", "vs_python", "jvm_python"),
        ),
        "JSON of 20 fields, nested, 1 KB; `from_json`": ("ingest.json.1KB", "vs_jvm", "jvm"),
        "a Python function of a typed record, 200 B; a Python UDF": (
            *("process.typed", "vs_jvm_udf", "jvm_udf"),
        ),
        "JSON into a DataFrame, 200 B; `from_json`": ("read.json.200B", "vs_jvm", "jvm"),
        "a whole run, 1 KB, lz4; a script": ("ingest.whole.1KB.lz4", "vs_script", "script"),
        "a whole run, 200 B, none; a script": ("ingest.whole.200B.none", "vs_script", "script"),
    }
    return _beside("values", rows)


def _upserts() -> Table:
    label = "the last row of each key, 200 B; `MERGE` in `foreachBatch`"
    return _beside("upserts", {label: ("upsert.200B", "vs_jvm", "jvm")})


def _beside(group: str, rows: Mapping[str, tuple[str, str, str]]) -> Table:
    """Each row beside another side, whose name the row's label has."""
    headings = ("what is read; beside what", "keyrange beside it", "keyrange", "the other side")
    return Table(
        group,
        (*headings, "memory of a task"),
        {
            label: (
                f"{prefix}.{versus}",
                f"{prefix}.keyrange.mrec_per_second",
                f"{prefix}.{other}.mrec_per_second",
                f"{prefix}.peak_rss.mb",
            )
            for label, (prefix, versus, other) in rows.items()
        },
    )


VALUE_TABLES: Mapping[str, Table] = {"values": _values(), "upserts": _upserts()}
