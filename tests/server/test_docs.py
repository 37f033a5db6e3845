"""What the documentation says is what the code does: every block of TOML is read, every name it gives is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from headway.core.consumer import Use, known_names
from headway.core.consumer.request.options import parse_options
from headway.core.policy.meters.catalogue import METERS
from headway.core.policy.rules.action import ACTIONS, Which
from headway.core.routing.publishing.publishing import PREFIX
from headway.core.telemetry.tables import TABLES, VERSION, LakeTable
from headway.server.admin.metric_help import HELP
from headway.server.config.reading import default_text, parse_settings
from headway.server.config.settings import FileTables

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.stem != "LAB")]
"""LAB.md shows a file of candidates (tests/pipeline/test_lab_candidates.py reads it)."""
POLICIES = (ROOT / "docs" / "POLICIES.md").read_text()
OPERATIONS = (ROOT / "docs" / "OPERATIONS.md").read_text()
LAKE = (ROOT / "docs" / "LAKE.md").read_text()
_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}-{block.splitlines()[0][:40]}")
    for page in PAGES for number, block in enumerate(_BLOCK.findall(page.read_text()), 1)
]  # fmt: skip
ROWS = [
    *("X1", "X2", "X3", "X4", "X6", "M1", "M2", "M3", "M4", "M5", "M6", "M8", "A1", "A2", "A3", "A5", "A6"),
    *("J1", "J2", "J3", "J4", "J5", "Q1", "Q2", "Q3"),
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_of_toml_is_a_config(block: str) -> None:
    parse_settings(block)


def test_the_pages_have_blocks_at_all() -> None:
    assert len(BLOCKS) >= 28


def test_every_test_the_table_of_rows_names_exists_and_every_row_has_one() -> None:
    text = "".join(file.read_text() for file in (ROOT / "tests/core").glob("test_rows_*.py"))
    there = set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    named = set(re.findall(r"`(test_[a-z0-9]+_\w+)`", POLICIES))
    assert named == there
    rows = re.findall(r"^\| ([A-Z]\d) \|.*`test_([a-z]\d)_", POLICIES, re.MULTILINE)
    assert [row for row, _ in rows] == ROWS
    assert all(row.lower() == test for row, test in rows)


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
    assert not missing, f"not in OPERATIONS.md: {missing}"


def _shown(value: object) -> str:
    """Returns a value as it is written in a config."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:_}"


def _section(name: str) -> str:
    found = re.search(rf"^### `\[+{name}[^\n]*\n(.*?)^##", OPERATIONS, re.DOTALL | re.MULTILINE)
    assert found is not None, f"OPERATIONS.md has no section on [{name}]"
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
    listed = set(re.findall(r"^\| `(\w+)` \|", OPERATIONS.split(PREFIX + "KIND/CLIENT")[1].split("\n\n## ")[0],
                            re.MULTILINE))
    assert told <= listed, f"not in OPERATIONS.md: {sorted(told - listed)}"


def test_every_subscription_option_is_listed_and_understood() -> None:
    section = OPERATIONS.split("## Subscription options")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)`", section, re.MULTILINE)
    assert {name for name, _ in listed} == set(known_names(Use.SUBSCRIPTION))
    for name, example in listed:
        assert parse_options([(name, example)]) != parse_options([]), name


def test_every_metric_and_endpoint_is_listed() -> None:
    server = ROOT / "src" / "headway" / "server"
    assert "published_records" in HELP
    missing = {name for name in HELP if not re.search(rf"`headway_{name}(_total)?[`{{]", OPERATIONS)}
    assert not missing
    routes = re.findall(r"web\.(get|post|delete)\(\"([^\"]+)\"", (server / "admin" / "api.py").read_text())
    for method, path in routes:
        shown = re.sub(r"\{client.*\}", "CLIENT", path)
        assert f"{method.upper()} {shown}" in OPERATIONS
