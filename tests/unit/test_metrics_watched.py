"""Alerts and the dashboard speak of numbers that exist, in PromQL that parses; each alert says what to do."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import REGISTRY

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "deploy/observability"

# Everything that defines a number; labels of a metric without any value yet are known from its definition.
DEFINING = (
    "tieline_protocol.metrics",
    "tieline_gateway.metrics",
    "tieline_streams.metrics",
    "tieline_remotes.metrics",
    "tieline_agent.metrics",
)
OF_EVERY_PROCESS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
OF_THE_TARGET = {"job", "instance"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OBSERVABILITY / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    board = json.loads((OBSERVABILITY / "dashboard.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(where it stands, PromQL with Grafana's variables replaced by what they may be)"""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")


@dataclass(frozen=True, slots=True)
class Metric:
    name: str  # as Prometheus shows it; of a histogram without _bucket
    labels: tuple[str, ...]
    help: str
    kind: str

    @property
    def samples(self) -> list[str]:
        return (
            [f"{self.name}_{part}" for part in ("bucket", "sum", "count")]
            if self.kind == "histogram"
            else [self.name]
        )


@cache
def metrics() -> list[Metric]:
    """Everything that our processes tell, by name."""
    for module in DEFINING:
        importlib.import_module(module)
    found = []
    for collector in REGISTRY._collector_to_names:
        live = getattr(collector, "_families", {})
        for family in collector.describe() if hasattr(collector, "describe") else ():
            labels = live[family.name].labels if live else getattr(collector, "_labelnames", ())
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.append(Metric(name, tuple(labels), family.documentation, family.type))
    return sorted((one for one in found if one.name.startswith("tieline_")), key=lambda one: one.name)


@cache
def known() -> dict[str, set[str]]:
    """The labels of every sample, by its name."""
    return {
        sample: {*one.labels, *(["le"] if sample.endswith("_bucket") else [])}
        for one in metrics()
        for sample in one.samples
    }


def selectors(expression: str) -> list[Any]:
    """Every selector of metrics in an expression."""
    found: list[Any] = []
    promql.walk(
        promql.parse(expression),
        lambda node: found.append(node) if isinstance(node, promql.VectorSelector) else None,
        lambda node: None,
    )
    return found


EXPRESSIONS = list(expressions())
IDS = [f"{where}-{n}" for n, (where, _) in enumerate(EXPRESSIONS)]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=IDS)
def test_an_expression_parses_and_its_numbers_exist_with_their_labels(where: str, expression: str) -> None:
    found = selectors(expression)
    assert found
    for selector in found:
        if selector.name in OF_EVERY_PROCESS:
            continue
        assert selector.name in known(), f"{where}: nothing tells {selector.name}"
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= known()[selector.name] | OF_THE_TARGET, f"{where}: {selector.name} has no such label"


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=IDS)
def test_what_is_grouped_by_is_a_label(where: str, expression: str) -> None:
    names = {selector.name for selector in selectors(expression)} - OF_EVERY_PROCESS
    told = set().union(*(known()[name] for name in names), OF_THE_TARGET)
    grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(", ")}

    assert grouped <= told, where


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Tieline[A-Z][A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_numbers_that_the_command_reads_exist() -> None:
    sources = "".join(path.read_text() for path in sorted((ROOT / "ops/src").rglob("*.py")))
    read = set(re.findall(r'metrics(?:\.get\(|\[)"(tieline_\w+)"', sources))

    assert read
    assert read <= known().keys()


def test_each_alert_has_a_runbook() -> None:
    lines = (ROOT / "docs/operations.md").read_text().splitlines()
    headings = {line.lstrip("#").strip() for line in lines if line.startswith("#")}

    assert {rule["alert"] for rule in rules()} <= headings


def test_names_of_alerts_and_panels_are_given_once() -> None:
    alerts = [rule["alert"] for rule in rules()]
    titles = [panel["title"] for panel in panels()]
    ids = [panel["id"] for panel in panels()]
    assert len(alerts) == len(set(alerts))
    assert len(titles) == len(set(titles))
    assert len(ids) == len(set(ids))


def test_the_document_lists_every_number() -> None:
    listed = [
        line
        for line in (ROOT / "docs/observability.md").read_text().splitlines()
        if line.startswith("| `tieline_")
    ]
    assert listed == [table_row(metric) for metric in metrics()]


def table_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: metric.name)
def test_labels_have_few_values(metric: Metric) -> None:
    """Ids, users and names that others choose would make a series for each of them."""
    chosen = {"session", "thread", "user", "run", "remote", "function", "model", "tool", "id"}
    assert not set(metric.labels) & chosen


def test_no_panel_lies_over_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((OBSERVABILITY / "dashboard.json").read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
