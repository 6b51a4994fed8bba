"""The tables of what is written to topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.table import Table
from bench.table import one_figure_a_row as _list

_COPIED: Final = {
    ("200B", "none"): "200 B, none",
    ("200B", "lz4"): "200 B, lz4",
    ("1KB", "lz4"): "1 KB, lz4",
}
# By format: its name, and of the library beside it the word in figures and the name.
_WRITTEN: Final = {
    "json": ("JSON", "json_dumps", "`json.dumps`"),
    "avro": ("Avro", "fastavro", "fastavro"),
    "protobuf": ("Protobuf", "upb", "Google's upb"),
}

SINK_TABLES: Mapping[str, Table] = {
    "sink": _list(
        "sink",
        {
            "sink.encode.mrec_per_core": (
                "rows of 200 bytes to sealed record batches, not compressed"
            ),
            **{
                f"sink.{form}.{figure}": f"values of eight fields as {name}, {side}"
                for form, (name, library, label) in _WRITTEN.items()
                for figure, side in (
                    (f"vs_{library}", f"beside {label}"),
                    ("keyrange.mrec_per_core", "keyrange"),
                    (f"{library}.mrec_per_core", label),
                )
            },
        },
    ),
    "sink_kafka": _list(
        "sink_kafka",
        {
            **{
                f"sink.kafka.{size}.{codec}.{figure}": f"{label}, {side}"
                for (size, codec), label in _COPIED.items()
                for figure, side in (
                    ("vs_jvm", "beside Spark's source and sink"),
                    ("keyrange.mrec_per_second", "`into_topic`"),
                    ("jvm.mrec_per_second", "Spark's source and sink"),
                )
            },
            "sink.kafka.peak_rss.mb": "memory of a sender, what is no mapped file",
        },
    ),
    "latency_kafka": _list(
        "latency_kafka",
        {
            f"kafka_to_kafka.latency.{share}.{figure}": (
                f"until a reader of committed records has it, {share}, {side}"
            )
            for share in ("p50", "p99")
            for figure, side in (
                ("vs_jvm", "beside Spark's source and sink"),
                ("keyrange.ms", "`into_topic`"),
                ("jvm.ms", "Spark's source and sink"),
            )
        },
    ),
}
