"""Every option that a page of docs/coming-from names is one that the importer knows, and the reverse."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.migration.files import EVERYTHING
from tests.migration.imported import imported, settings_of

from headway.migration import ORIGINS
from headway.migration.draft import Draft, Option, Result
from headway.migration.formats import ITEM, Kind, Node, Where
from headway.migration.origins import Origin
from headway.server.config import PRESETS

PAGES = Path(__file__).parents[2] / "docs" / "coming-from"
OF_PAGE = {
    "ACTIVEMQ": ["activemq"], "AMPS": ["amps"], "QPID": ["qpid", "qpidd"], "XAP": ["xap"], "RABBITMQ": ["rabbitmq"],
    "REDIS": ["redis"], "NATS": ["nats"], "MOSQUITTO": ["mosquitto"],
}  # fmt: skip
"""Origins by page. A-MQ has those of ActiveMQ, and its page the rows about slow consumers."""
BY_NAME = {origin.name: origin for origin in ORIGINS}
AS_A_PAGE_HAS_THEM = [(origin, option) for origin in ORIGINS for option in origin.options]
_EXAMPLE = re.compile(r"^```(?:xml)?\n([^`]*)^```\n\nbecomes[^\n]*\n\n```toml\n([^`]*)^```", re.MULTILINE)
_ROW = re.compile(r"^\| `.*\|$", re.MULTILINE)


def row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    cells = [names, option.here, option.differs or "—"] if option.here else [names, option.differs]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("page", OF_PAGE)
def test_a_page_has_a_row_for_each_option_and_no_other(page: str) -> None:
    expected: list[str] = []
    for name in OF_PAGE[page]:
        options = BY_NAME[name].options
        expected += [row(one) for one in options if one.here] + [row(one) for one in options if not one.here]
    assert _ROW.findall((PAGES / f"{page}.md").read_text()) == expected, "as it should be:\n" + "\n".join(expected)


@pytest.mark.parametrize("page", ["ACTIVEMQ", "QPID", "AMPS", "XAP"])
def test_the_example_of_a_page_becomes_what_the_page_says(page: str, tmp_path: Path) -> None:
    before, after = _EXAMPLE.findall((PAGES / f"{page}.md").read_text())[0]
    made = tomllib.loads(imported(tmp_path, ("file", before)).text)
    for table, shown in tomllib.loads(after).items():
        assert all(one in made[table] for one in shown), made[table]


def test_the_page_of_a_mq_has_rows_of_activemq() -> None:
    rows = _ROW.findall((PAGES / "A-MQ.md").read_text())
    assert len(rows) >= 8
    assert set(rows) <= {row(one) for one in BY_NAME["activemq"].options}


def test_every_origin_and_every_preset_has_its_page_and_the_start_page_links_it() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")}
    assert pages == {*OF_PAGE, "A-MQ"}
    assert {name for names in OF_PAGE.values() for name in names} == set(BY_NAME)
    assert {page.lower() for page in pages} == set(PRESETS)
    start = (PAGES.parent / "start" / "ANOTHER_BROKER.md").read_text()
    assert not [page for page in pages if f"(../coming-from/{page}.md)" not in start]
    assert not [page for page in pages if f"serve --preset {page.lower()} " not in (PAGES / f"{page}.md").read_text()]


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_option_with_a_counterpart_is_carried_over_or_needs_no_line(name: str, tmp_path: Path) -> None:
    found = imported(tmp_path, *EVERYTHING[name])
    assert found.origin.name == name, "told by what is in the files"
    settings_of(found)
    done = [one for one in found.outcomes if one.result is not Result.LOST or "here; the " in one.why]
    unseen = [
        other for option in found.origin.options for other in option.names
        if option.here and not other.endswith("*") and not any(_is(other, one.option) for one in done)
    ]  # fmt: skip
    assert not (set(unseen) - SEEN_ELSEWHERE), found.text
    assert not [one for one in found.outcomes if one.where.line < 1]


SEEN_ELSEWHERE = {
    "consumer", "slow-consumer", "slow-consumer-detection", "topics", "queues", "Transport", "Topic", "TopicMetaData",
    "TopicDefinition", "ConflatedTopic", "TopicReplica", "policy", "uniquePropertyMessageEvictionStrategy",
    "web_mqtt.tcp.listener", "management.listener.port", "vm_memory_high_watermark.relative", "stomp.listeners.tcp.*",
    "password_file",
}
"""Groups, whose settings are looked at instead; names of which a file has one or the other."""


def _is(name: str, label: str) -> bool:
    """Whether a line of the report is about an option, which may have the element around it in front."""
    return label in (name, name.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("name", "option"),
    [pytest.param(origin.name, option, id=f"{origin.name} {option.names[0]}")
     for origin, option in AS_A_PAGE_HAS_THEM if not option.here],
)  # fmt: skip
def test_every_option_without_a_counterpart_is_said_to_have_none(name: str, option: Option) -> None:
    for each in option.names:
        draft, root = Draft(BY_NAME[name].options), Node("", Where("f", 1))
        _node(each.replace("*", "x"), root)
        draft.leftovers(root)
        (outcome,) = draft.outcomes
        assert outcome.result is Result.LOST
        assert outcome.why == option.differs.replace("`", ""), each


def _node(name: str, root: Node) -> Node:
    """A setting of this name, in the form in which names are written."""
    around, _, last = name.rpartition(" ")
    if around:
        return Node(last, Where("f", 2), "1", Node(around, Where("f", 1), "", root), Kind.ATTRIBUTE)
    return Node(name, Where("f", 2), "1", root)


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.name)
def test_no_option_is_in_two_rows(origin: Origin) -> None:
    names = [name for option in origin.options for name in option.names]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_names_of_blocks_leave_out_their_items() -> None:
    root = Node("", Where("f", 1))
    item = Node(ITEM, Where("f", 1), "", Node("policies", Where("f", 1), "", root, Kind.KEY), Kind.KEY)
    assert Node("name", Where("f", 1), "x", item, Kind.KEY).label == "policies.name"
