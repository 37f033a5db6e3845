"""The pages that are made from the sources are as their program makes them."""

from __future__ import annotations

import pytest
from tests.docs.reference import CLI, CONFIG, SECTIONS, cli_page, config_page

from headway.server.config.fields import Table
from headway.server.config.settings import FileTables

ANEW = "python -m tests.docs.reference makes it anew"


def test_the_page_of_the_command_line_is_what_help_says() -> None:
    assert CLI.read_text(encoding="utf-8") == cli_page(), ANEW


def test_the_tables_of_the_config_are_those_of_its_models() -> None:
    page = CONFIG.read_text(encoding="utf-8")
    assert config_page(page) == page, ANEW
    assert {section.partition(".")[0] for section in SECTIONS} == FileTables.model_fields.keys()


def test_a_key_without_a_sentence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Table):
        name: str = ""

    monkeypatch.setitem(SECTIONS, "server", Silent)
    monkeypatch.setattr("tests.docs.reference._fields", lambda table: {"name": (None, "")})
    with pytest.raises(AssertionError, match=r"Silent\.name has no sentence"):
        config_page(CONFIG.read_text(encoding="utf-8"))
