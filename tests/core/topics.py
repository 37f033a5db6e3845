"""Topics and filters for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

LEVEL = st.sampled_from(["a", "b", "", "$a", "c"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVEL, st.just("+")), max_size=4))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return "/".join(levels) or "+"


def slow_match(filter_: str, topic: str) -> bool:
    """The specification's words, as plainly as can be."""
    if topic[0] == "$" and filter_[0] in "+#":
        return False

    def go(wanted: list[str], given_: list[str]) -> bool:
        if wanted == ["#"]:
            return True
        if not wanted or not given_:
            return wanted == given_
        return wanted[0] in ("+", given_[0]) and go(wanted[1:], given_[1:])

    return go(filter_.split("/"), topic.split("/"))
