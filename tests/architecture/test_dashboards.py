"""Dashboard and alert rules of conf/: they ask for metrics that there are, by their labels."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from keyrange.observing.model.metric_table import TABLE, Metric, MetricKind, prometheus_name
from keyrange.observing.model.query_metrics import QueryMetrics
from keyrange.observing.model.query_progress import read_query_progress
from project.snippets import ROOT
from samples.progresses import progress, source

RULES = (ROOT / "conf" / "prometheus-rules.yaml").read_text()
DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text())
_NAME = re.compile(r"\bkeyrange_\w+")
# A name, its selector where it has one, and whether a range of it is asked for.
_ASKED = re.compile(r"\b(?P<name>keyrange_\w+)(?:\{(?P<selector>[^}]*)\})?(?P<range>\[\w+\])?")
# Metrics are asked for by name and label; the rest of an expression is one of these.
_FUNCTIONS = {"by", "deriv", "increase", "min_over_time", "on", "or", "rate", "sum", "time"}


def exported_name(metric: Metric) -> str:
    return prometheus_name(metric) + ("_total" if metric.kind is MetricKind.COUNTER else "")


METRICS = {exported_name(metric): metric for metric in TABLE}


def panels() -> list[dict[str, Any]]:
    return [each for each in DASHBOARD["panels"] if each["type"] != "row"]


def rules() -> list[tuple[str, str]]:
    """The name and the expression of each rule."""
    return re.findall(r"^ +- alert: (\w+)\n +expr: (.+)$", RULES, re.M)


EXPRESSIONS = [expression for _, expression in rules()] + [
    target["expr"] for panel in panels() for target in panel["targets"]
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_metrics_that_there_are(expression: str) -> None:
    asked = list(_ASKED.finditer(expression))
    assert asked
    for each in asked:
        metric = METRICS[each["name"]]
        labels = set(re.findall(r"(\w+)\s*=", each["selector"] or ""))
        assert labels <= set(metric.labels)
        # A counter says something by its rise alone, or as a sum in all.
        assert not (each["range"] and metric.kind is MetricKind.GAUGE) or re.search(
            r"(deriv|_over_time)\($", expression[: each.start()]
        )
    for names in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
        assert {name.strip() for name in names.split(",")} <= {"query", "source"}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_whole(expression: str) -> None:
    assert all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}"))
    assert set(re.findall(r"\b([a-z_]+) ?\(", expression)) <= _FUNCTIONS
    # What YAML would read as a comment or a key.
    assert not re.search(r" #|: ", expression)


@pytest.mark.parametrize(
    ("alert", "counter"),
    [
        ("KeyrangeQueryFailed", "keyrange_query_failures_total"),
        ("KeyrangeDeadLetters", "keyrange_dead_records_total"),
        ("KeyrangeRecordsLost", "keyrange_lost_total"),
    ],
)
def test_what_the_first_batch_of_a_process_counts_is_alerted_to(alert: str, counter: str) -> None:
    """Records that are lost are found as a query starts: the first value of the counter has them,
    and increase() takes that for where it began."""
    known = QueryMetrics()
    lost = {"offsets": 40, "found": []}
    read = read_query_progress(progress(0, source({"0": 1}, {"0": 3}, losses=lost)))
    assert read is not None
    assert not list(known.samples())
    known.observe(read, 0.0)
    assert {"keyrange.lost": 40.0}.items() <= {
        each.metric.name: each.value for each in known.samples()
    }.items()
    assert f"{counter} unless {counter} offset 15m" in dict(rules())[alert]


def test_all_names_are_in_expressions_that_were_looked_at() -> None:
    said = "\n".join(EXPRESSIONS)
    variables = "label_values(keyrange_query_running, query)"
    assert variables == DASHBOARD["templating"]["list"][1]["query"]["query"]
    looked_at = _NAME.findall(said + variables)
    everywhere = _NAME.findall(RULES + json.dumps(DASHBOARD))
    assert sorted(set(looked_at)) == sorted(set(everywhere))
    assert set(looked_at) <= METRICS.keys()


def test_rules_have_names_of_their_own_and_say_what_is_wrong() -> None:
    names = [name for name, _ in rules()]
    assert len(names) == len(set(names)) == RULES.count("- alert:") > 10
    assert RULES.count("severity: ") == RULES.count("summary: ") == len(names)
    labels = set(re.findall(r"\$labels\.(\w+)", RULES))
    assert labels <= {"query", "source"}


def test_panels_have_a_place_and_labels_that_there_are() -> None:
    ids = [each["id"] for each in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = set()
    for each in DASHBOARD["panels"]:
        at = each["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places
        places |= cells
    for panel in panels():
        for target in panel["targets"]:
            names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            [first, *_] = _ASKED.finditer(target["expr"])
            assert names <= set(METRICS[first["name"]].labels)
