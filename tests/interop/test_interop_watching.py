"""The alerts and the dashboard ask for what a broker shows: every metric, label and value of a label that they name is
there. The texts are read by a small grammar of PromQL; each alert has its section in the page that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lark
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.waiting import until

from headway.core.base import Cause, Reason
from headway.core.policy import ActionKind
from headway.server.admin.metrics import HELP
from headway.server.loop import CAUSES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "prometheus"
PAGE = (ROOT / "docs" / "IN_PRODUCTION.md").read_text()
yaml = pytest.importorskip("yaml")

PROMQL = lark.Lark(r"""
    ?start: either
    ?either: compared ("or" compared)*
    ?compared: sum (COMPARISON sum)?
    ?sum: product (("+" | "-") product)*
    ?product: atom (("*" | "/") atom)*
    ?atom: NUMBER | STRING | selector | call | aggregate | "(" either ")"
    call: FUNCTION "(" [either ("," either)*] ")"
    aggregate: AGGREGATE [by] "(" (either ",")? either ")" [by]
    by: ("by" | "without") "(" LABEL ("," LABEL)* ")"
    selector: NAME ["{" matcher ("," matcher)* "}"] ["[" DURATION "]"]
    matcher: LABEL MATCH STRING
    COMPARISON: "==" | "!=" | ">=" | "<=" | ">" | "<"
    MATCH: "=~" | "!~" | "!=" | "="
    FUNCTION.2: /(rate|increase|time|histogram_quantile)(?=\s*\()/
    AGGREGATE.2: /(sum|topk|max|min|count)(?=\s*(\(|by\b|without\b))/
    DURATION: /\d+[smhd]/
    LABEL: /[a-z_]+/
    NAME: /[a-z_:]+/
    NUMBER: /\d+(\.\d+)?(e\d+)?/
    STRING: /"[^"]*"/
    %ignore /\s+/
""", parser="earley")  # fmt: skip
TARGET = {"job", "instance"}
"""Labels that Prometheus gives to what it scrapes."""
OF_PROMETHEUS = {"up"}
VALUES: dict[str, set[str]] = {
    "reason": {*Reason}, "cause": {*Cause, *CAUSES, "none"}, "action": {*ActionKind, "plugin"},
    "enforced": {"true", "false"}, "medium": {"memory", "disk", "clients", "states"},
    "state": {"ok", "behind", "slow", "conflating", "discarding", "offline", "away"},
}  # fmt: skip


class Selector(NamedTuple):
    metric: str
    matches: dict[str, str]


def selectors(expr: str) -> Iterator[Selector]:
    for found in PROMQL.parse(expr).find_data("selector"):
        name, *rest = [one for one in found.children if one is not None]
        matchers = [one.children for one in rest if isinstance(one, lark.Tree)]
        yield Selector(str(name), {str(label): str(value)[1:-1] for label, _, value in matchers})


def labels_of(expr: str) -> set[str]:
    """Labels by which an expression groups."""
    return {str(label) for by in PROMQL.parse(expr).find_data("by") for label in by.children}


@cache
def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "headway.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "headway.dashboard.json").read_text())
    return found


TARGETS = [(panel["title"], target) for panel in board()["panels"] for target in panel.get("targets", ())]
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in rules()] + [(title, one["expr"]) for title, one in TARGETS]


@pytest.fixture(scope="module")
def shown(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of every metric that a broker with all of its parts shows."""
    folder = tmp_path_factory.mktemp("all")
    broker = start(f'[listeners.auto]\nurl = "auto://127.0.0.1:0"\n[journal]\npath = "{folder}/journal"\n'
                   f'[telemetry]\npath = "{folder}/lake"\n')  # fmt: skip
    client = Pika(broker.port)
    client.channel.queue_declare("work", durable=True)
    client.put("work", b"x", delivery_mode=2)
    with Raw(broker.port, "reader") as reader:
        reader.subscribed("a/#")
        paths = ("/metrics", "/metrics/consumers", "/metrics/queues")
        pages = [until(lambda: broker.call(path)[1].decode()) for path in paths]  # noqa: B023
    client.close()
    found: dict[str, set[str]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            found.setdefault(family.name, set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        # A counter that has counted nothing yet has no sample.
        found |= {f"{name}_total": set() for name in re.findall(r"^# TYPE (\w+)_total counter", page, re.M)
                  if f"{name}_total" not in found}  # fmt: skip
    broker.stop()
    return found


@pytest.mark.parametrize(("where", "expr"), EXPRESSIONS, ids=lambda value: str(value)[:50])
def test_what_is_asked_for_is_there(shown: dict[str, set[str]], where: str, expr: str) -> None:
    asked = list(selectors(expr))
    assert asked, where
    for metric, matches in asked:
        if metric in OF_PROMETHEUS:
            continue
        assert metric in shown, metric
        known = shown[metric] or labels_in_docs(metric)
        for label, value in matches.items():
            assert label in known | TARGET, (metric, label)
            assert label not in VALUES or value in VALUES[label], (label, value)
    known = set().union(*(shown.get(metric, set()) | labels_in_docs(metric) for metric, _ in asked))
    assert labels_of(expr) <= known | TARGET | {"le"}


def labels_in_docs(metric: str) -> set[str]:
    """Labels of a metric that has no sample yet, as ADMIN_API.md lists them."""
    listed = re.search(rf"`{metric}{{([\w,]+)}}`", (ROOT / "docs" / "ADMIN_API.md").read_text())
    return set(listed[1].split(",")) if listed else set()


@pytest.mark.parametrize(("where", "target"), TARGETS, ids=lambda value: str(value)[:50])
def test_a_legend_names_labels_that_the_series_have(
    shown: dict[str, set[str]], where: str, target: dict[str, str]
) -> None:
    legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    grouped = labels_of(target["expr"])
    metrics = [one.metric for one in selectors(target["expr"])]
    known = set().union(*(shown.get(metric, set()) | labels_in_docs(metric) for metric in metrics))
    assert legend <= (grouped or known)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket", "info")
    assert re.search(rf"^### {re.escape(rule['annotations']['see'])}$", PAGE, re.MULTILINE | re.IGNORECASE)
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    known = set().union(*(set(one.matches) | labels_in_docs(one.metric) for one in selectors(rule["expr"])))
    assert named <= known | labels_of(rule["expr"]) | TARGET | {"pool"}
    assert f"`{rule['alert']}`" in PAGE


def test_the_scraped_pages_are_the_brokers() -> None:
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    page = (ROOT / "docs" / "ADMIN_API.md").read_text()
    assert jobs["rule_files"] == ["headway.rules.yml"]
    paths = {job.get("metrics_path", "/metrics") for job in jobs["scrape_configs"]}
    assert paths == {"/metrics", "/metrics/consumers", "/metrics/queues"}
    assert all(f"`GET {path}`" in page for path in paths)


def test_panels_have_numbers_and_places_of_their_own() -> None:
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(places)


def test_the_grammar_refuses_what_is_no_promql() -> None:
    for bad in ("rate(a", "sum by () (a)", "a{b=c}", "a >", "rate(a[5x])"):
        with pytest.raises(lark.exceptions.LarkError):
            PROMQL.parse(bad)
    assert "connections" in HELP
