"""Names of topics and queues: the wildcards of other systems, written as filters of MQTT."""

from __future__ import annotations

from headway.core.message import BadTopic, validate_filter
from headway.migration.draft.units import Unreadable


def from_dotted(name: str, *, rest: str = ">") -> str:
    """Returns the filter for a name such as ``stocks.us.*`` or ``stocks.>``. Raises Unreadable."""
    levels: list[str] = []
    words = name.split(".")
    for position, word in enumerate(words, 1):
        if word == rest:
            if position < len(words):
                raise Unreadable(f"{name!r}: {rest} stands for several levels at the end only")
            levels.append("#")
        elif word == "*":
            levels.append("+")
        elif set(word) & {"*", rest, "+", "#", "/"}:
            raise Unreadable(f"{name!r}: a wildcard stands for a whole level, not for a part of one")
        else:
            levels.append(word)
    return _valid("/".join(levels), name)


def from_words(key: str) -> str:
    """Returns the filter for a binding key of AMQP's topic exchanges. Raises Unreadable."""
    return from_dotted(key, rest="#")


def queue_filter(name: str, *, every: tuple[str, ...] = (), rest: str = "") -> str:
    """Returns the filter for a queue, or for all where the name is one of ``every``. ``rest``: the wildcard for all
    further words, in a system that has patterns of names; empty: it has none. Raises Unreadable."""
    if name in every:
        return "$queue/+"
    if set(name) & set("*>+#/"):
        if rest:
            return _valid(f"$queue/{from_dotted(name, rest=rest)}", name)
        raise Unreadable(f"{name!r}: a policy is for one queue or for all ($queue/+), not for this pattern of names")
    return _valid(f"$queue/{name}", name)


def _valid(filter: str, name: str) -> str:
    try:
        return validate_filter(filter)
    except BadTopic as error:
        raise Unreadable(f"{name!r}: {error}") from None
