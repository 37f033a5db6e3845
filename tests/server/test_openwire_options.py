"""Hints in front of a selector: the options of a consumer of JMS."""

from __future__ import annotations

import pytest

from headway.server.openwire.faults import JmsFault
from headway.server.openwire.options import split


@pytest.mark.parametrize(("selector", "hints", "condition"), [
    ("", [], None),
    ("TRUE", [], None),
    ("a > 1", [], "a > 1"),
    ("/*+ snapshot=true conflate=500ms */ a > 1", [("snapshot", "true"), ("conflate", "500ms")], "a > 1"),
    ("/*+snapshot*/TRUE", [("snapshot", "true")], None),
    ("  /*+ a=1 */ /*+ b= */ TRUE", [("a", "1"), ("b", "true")], None),
    ("/*+ order_by='/price DESC' top=2 */ TRUE", [("order_by", "/price DESC"), ("top", "2")], None),
    ("/*+ select='/a AS ''x'', count(*) AS n' */ TRUE", [("select", "/a AS 'x', count(*) AS n")], None),
    ("/*+ select='*/' */ TRUE", [("select", "*/")], None),
    ("/* a remark */ a > 1", [], "a > 1"),
    ("/*+ */ a > 1", [], "a > 1"),
])  # fmt: skip
def test_hints_and_the_condition(selector: str, hints: list[tuple[str, str]], condition: str | None) -> None:
    assert split(selector) == (hints, condition)


@pytest.mark.parametrize("selector", [
    "/*+ a=1", "/*+ a='1 */ TRUE", "/*+ a='1'b */ TRUE", "/*+ ='1' */ TRUE", "/*+ 'a' */ TRUE", "/*+ a = 1 */ TRUE",
    "/*+ " + "a" * 100_000, "/*+ a='" + "''" * 50_000,
])  # fmt: skip
def test_hints_that_cannot_be_read_are_refused(selector: str) -> None:
    """None is left out in silence."""
    with pytest.raises(JmsFault, match="expected NAME=VALUE"):
        split(selector)
