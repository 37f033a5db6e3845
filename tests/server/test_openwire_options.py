"""Hints in front of a selector: the options of a consumer of JMS."""

from __future__ import annotations

import pytest

from headway.server.openwire.ports import _TOKEN, JmsFault, split


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
    "/*+ " + "a" * 8000, "/*+ a='" + "''" * 4000,
])  # fmt: skip
def test_hints_that_cannot_be_read_are_refused(selector: str) -> None:
    """None is left out in silence."""
    with pytest.raises(JmsFault, match="expected NAME=VALUE"):
        split(selector)


def test_a_long_selector_is_refused_before_it_is_read() -> None:
    with pytest.raises(JmsFault, match="65400 characters, its hints included; 8192 are allowed"):
        split("/*a" * 21_800)


def test_the_end_of_a_comment_is_looked_for_once() -> None:
    """The end of a comment was searched for from every beginning of one, which took quadratic time."""
    assert len(_TOKEN.findall("/*a" * 2000)) == 1
    with pytest.raises(JmsFault, match="a name or value should stand here"):
        split("/*a" * 2000)
