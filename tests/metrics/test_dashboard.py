"""The dashboard asks for what is exported, for all of it, and is laid out as Grafana takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from monitor import NAMES, line, progress, session, stage
from secea.engines.meters import Meters

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final = json.loads((ROOT / "packaging" / "grafana" / "secea.json").read_text(encoding="utf-8"))
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPED: Final = {"instance", "le"}
"""Labels that Prometheus adds, and that histograms have."""

AT_SERVER = [
    line("start", session="", rounds=1), line("here", client="north"), stage(1.0), progress(1, 2, 3, memory=4, peak=5),
    line("lost", client="west", cause="slow"), line("refused", kind="hello", bytes=1), line("round lost"),
    line("round", number=1, clients=list(NAMES)), progress(1, 2, 3), line("end"),
]  # fmt: skip
AT_A_SITE = [
    line("start"), line("sent", bytes=1), line("refused", kind="hello", bytes=1), line("stopped"), line("left out"),
    line("trained", seconds=1.0, memory=4, peak=5), line("end"),
]  # fmt: skip


def exported() -> dict[str, set[str]]:
    """The labels of each name that Prometheus sees, of a server and a site that did everything once."""
    found = dict[str, set[str]]()
    for server, lines in ((True, AT_SERVER), (False, AT_A_SITE)):
        registry = CollectorRegistry()
        provider = MeterProvider(
            [PrometheusMetricReader(registry=registry, scope_info_enabled=False)], shutdown_on_exit=False
        )
        Meters(provider.get_meter("test"), session(), server=server, again=session).take(lines)
        for family in registry.collect():
            for sample in family.samples:
                if sample.name != "target_info":
                    found.setdefault(sample.name, set()).update(sample.labels)
    return found


EXPORTED: Final = exported()


def queries() -> Iterator[tuple[str, str]]:
    """The title of each panel, and what it asks for."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def names(expression: str) -> set[str]:
    """The metrics in a query: words of ours that are no labels in braces or behind `by`."""
    bare = re.sub(r"\{[^}]*\}|\b(by|on|without) \([^)]*\)", "", expression)
    return set(re.findall(r"\bsecea_\w+", bare))


def labels(expression: str) -> set[str]:
    listed = [part for group in re.findall(r"\b(?:by|on|without) \(([^)]*)\)", expression) for part in group.split(",")]
    matched = [word for group in re.findall(r"\{([^}]*)\}", expression) for word in re.findall(r"(\w+)\s*=", group)]
    return {word.strip() for word in (*listed, *matched)}


@pytest.mark.parametrize(("title", "expression"), list(queries()))
def test_a_query_names_metrics_and_labels_that_are_exported(title: str, expression: str) -> None:
    assert names(expression)
    assert names(expression) <= EXPORTED.keys()
    for each in names(expression):
        assert labels(expression) - SCRAPED <= set().union(*(EXPORTED[name] for name in names(expression))), each


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*(names(expression) for _, expression in queries()))
    histograms = {name.removesuffix("_bucket") for name in EXPORTED if name.endswith("_bucket")}
    plain = {name for name in EXPORTED if not name.startswith(tuple(histograms))}
    assert plain <= shown
    for name in histograms:
        assert {f"{name}_{part}" for part in ("sum", "count")} <= shown
    assert EXPORTED.keys() >= shown


def test_words_in_queries_are_words_of_labels() -> None:
    known = set(re.findall(r'"([\w|]+)"', json.dumps([["lost", "here|works|trains", "here", "works", "trains"]])))
    for _, expression in queries():
        assert set(re.findall(r'secea_\w+=~?"([^"]*)"', expression)) <= known


def test_legends_use_labels_that_the_query_leaves() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            groups = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            aggregated = re.match(r"(sum|max|histogram_quantile)\b", target["expr"])
            left = {each.strip() for each in groups[0].split(",")} if groups else set() if aggregated else {"instance"}
            assert used <= left, panel["title"]


def test_panels_have_places_of_their_own_numbers_of_their_own_and_a_source_that_is_asked_for() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for place in places:
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r"\$\{?(\w+)", text)) <= variables | {"__rate_interval", "__all"}
    sources: list[Any] = [panel["datasource"] for panel in PANELS]
    sources += [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    assert not [key for key in DASHBOARD if key in ("id", "__inputs")], "it can be imported into any Grafana"


def test_states_on_the_dashboard_are_those_of_clients() -> None:
    from secea.engines.progress import Doing

    (panel,) = [panel for panel in PANELS if panel["type"] == "state-timeline"]
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    numbered = {text["text"]: int(number) for number, text in mapping["options"].items()}
    assert numbered.keys() == set(Doing)
    weights = dict(re.findall(r'state="(\w+)"\} \* (\d)', panel["targets"][0]["expr"]))
    assert {state: number for state, number in numbered.items() if number} == {k: int(v) for k, v in weights.items()}
