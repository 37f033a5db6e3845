"""What the documentation says is what the code does: every block of TOML is read, every name it gives is there."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from tests.docs.five_systems import PAGES as SYSTEM_PAGES
from tests.docs.five_systems import SYSTEMS, between, mistakes, tables

from headway.core.consumer import Use, known_names
from headway.core.consumer.request import parse_options
from headway.core.policy.meters.meter import METERS
from headway.core.policy.rules.rule import ACTIONS, Which
from headway.core.routing.publishing import PREFIX
from headway.core.telemetry.stats import TABLES, VERSION, LakeTable
from headway.server.admin.metrics import HELP
from headway.server.config.reading import default_text, parse_settings
from headway.server.config.settings import FileTables

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.stem != "LAB")]
"""LAB.md shows a file of candidates (tests/pipeline/test_lab_candidates.py reads it)."""
POLICIES = (ROOT / "docs" / "POLICIES.md").read_text()
BEYOND = (ROOT / "docs" / "FIVE_SYSTEMS.md").read_text()
ADMIN_API = (ROOT / "docs" / "ADMIN_API.md").read_text()
CONFIG = (ROOT / "docs" / "CONFIG.md").read_text()
OPTIONS = (ROOT / "docs" / "OPTIONS.md").read_text()
LAKE = (ROOT / "docs" / "LAKE.md").read_text()
_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}-{block.splitlines()[0][:40]}")
    for page in PAGES for number, block in enumerate(_BLOCK.findall(page.read_text()), 1)
]  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_of_toml_is_a_config(block: str) -> None:
    parse_settings(block)


def test_the_pages_have_blocks_at_all() -> None:
    assert len(BLOCKS) >= 28


def test_every_statement_of_the_five_systems_names_tests_that_exist() -> None:
    assert list(mistakes(SYSTEMS)) == []
    one = {"number": 1, "row": "X1", "says": "", "here": "", "state": "has", "tests": ["server/test_docs.py::test_x"]}
    assert list(mistakes({"XAP": [one, one | {"state": "maybe", "tests": []}]})) == [
        "the numbers do not count from 1 up", "1: there is no test server/test_docs.py::test_x",
        "1: it has number, row, says, here, state (has, partly, otherwise, does not apply) and tests",
        "1: names no test that shows it",
    ]  # fmt: skip


def test_the_tables_of_the_five_systems_are_made_of_the_statements() -> None:
    made = dict(tables())
    assert made.keys() == SYSTEM_PAGES.keys()
    for mark, page in SYSTEM_PAGES.items():
        text = page.read_text()
        assert between(text, mark, made[mark]) == text, "python -m tests.docs.five_systems makes them anew"


def test_every_test_of_a_row_is_named() -> None:
    text = "".join(file.read_text() for file in (ROOT / "tests/core").glob("test_rows_*.py"))
    named = {name.partition("::")[2] for one in chain(*SYSTEMS.values()) for name in one["tests"]}
    assert set(re.findall(r"^def (test_\w+)", text, re.MULTILINE)) <= named | set(re.findall(r"`(test_\w+)`", BEYOND))


def test_every_test_that_the_rows_for_who_is_away_name_exists() -> None:
    files = ("core/test_away.py", "server/test_journal_memory.py")
    text = "".join((ROOT / "tests" / file).read_text() for file in files)
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "JOURNAL.md").read_text())
    assert len(named) >= 9
    assert set(named) <= set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))


def test_every_test_that_the_rows_over_amqp_name_exists() -> None:
    files = [*(ROOT / "tests/core").glob("test_queue_rows_*.py"),
             *(ROOT / f"tests/interop/test_amqp_{name}.py" for name in ("matrix", "slow", "stuck"))]  # fmt: skip
    text = "".join(file.read_text() for file in files)
    named = re.findall(r"`(test_[a-z]\d_\w+)`", (ROOT / "docs" / "AMQP.md").read_text())
    assert len(named) >= 24
    assert set(named) <= set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("word", [*METERS, *ACTIONS, *Which])
def test_every_meter_action_and_discard_is_explained(word: str) -> None:
    assert re.search(rf"^\| `{word}` \|", POLICIES, re.MULTILINE)


def test_every_key_of_the_config_is_listed_with_its_default() -> None:
    """As it stands in defaults.toml, where it has one."""
    defaults = tomllib.loads(default_text())
    missing = []
    for section, field in FileTables.model_fields.items():
        table = field.annotation
        if section in ("listeners", "topic", "views", "tables", "permission", "limit"):
            table = table.__args__[-1]  # type: ignore[union-attr]
        for name, key in table.model_fields.items():  # type: ignore[union-attr]
            written = key.alias or name
            listed = re.search(rf"^\| `{written}` \| ([^|]+) \|", _section(section), re.MULTILINE)
            if listed is None:
                missing.append(f"{section}.{written}")
                continue
            values = defaults.get(section, {})
            values = values.get("mqtt", {}) if section == "listeners" else values
            if isinstance(values, dict) and written in values and written != "url":
                assert _shown(values[written]) in listed[1], f"{section}.{written}"
    assert not missing, f"not in CONFIG.md: {missing}"


def _shown(value: object) -> str:
    """Returns a value as it is written in a config."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:_}"


def _section(name: str) -> str:
    found = re.search(rf"^## `\[+{name}[^\n]*\n(.*?)(?=^#|\Z)", CONFIG, re.DOTALL | re.MULTILINE)
    assert found is not None, f"CONFIG.md has no section on [{name}]"
    return found[1]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_page_of_the_lake_has_every_column_with_its_meaning(table: LakeTable) -> None:
    section = LAKE.split(f"\n### `{table.name}`\n")[1].split("\n### ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| `")]
    expected = [f"| `{column.name}` | {column.kind} | {column.about} |" for column in table.columns]
    assert listed == expected, "as it should be:\n" + "\n".join(expected)
    assert f"Key: {', '.join(f'`{name}`' for name in table.key)}." in section
    assert f"`headway.schema`, now `{VERSION}`" in LAKE


def test_every_advisory_is_listed() -> None:
    told = set()
    for path in (ROOT / "src" / "headway" / "core").rglob("*.py"):
        text = path.read_text()
        told |= set(re.findall(r"\.tell\(\s*\"(\w+)\"", text))
        told |= {word for pair in re.findall(r"\.tell\(\s*\"(\w+)\" if \w+ else \"(\w+)\"", text) for word in pair}
    assert told >= {"slow", "recovered", "gap", "offlined"}
    listed = set(re.findall(r"^\| `(\w+)` \|", ADMIN_API.split(PREFIX + "KIND/CLIENT")[1].split("\n\n## ")[0],
                            re.MULTILINE))
    assert told <= listed, f"not in ADMIN_API.md: {sorted(told - listed)}"


def test_every_subscription_option_is_listed_and_understood() -> None:
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)`", OPTIONS, re.MULTILINE)
    assert {name for name, _ in listed} == set(known_names(Use.SUBSCRIPTION))
    for name, example in listed:
        assert parse_options([(name, example)]) != parse_options([]), name


def test_every_metric_and_endpoint_is_listed() -> None:
    server = ROOT / "src" / "headway" / "server"
    assert "published_records" in HELP
    missing = {name for name in HELP if not re.search(rf"`headway_{name}(_total)?[`{{]", ADMIN_API)}
    assert not missing
    routes = re.findall(r"web\.(get|post|delete)\(\"([^\"]+)\"", (server / "admin" / "api.py").read_text())
    for method, path in routes:
        shown = re.sub(r"\{client.*\}", "CLIENT", path)
        assert f"{method.upper()} {shown}" in ADMIN_API
