"""Wildcards of other systems in topic filters, and how MQTT, whose filters Headway has, would write them.

NATS, ActiveMQ and TIBCO write ``stocks.us.>``, AMQP ``stocks.*.open`` and ``stocks.#``, Ant and Spring ``stocks/**``.
The words of a queue's name are levels, too: ``$queue/orders/#`` is for ``orders.eu``.
"""

from __future__ import annotations

import re

_OTHERS = re.compile(r"(^|[./])(>|\*{1,2}|%)(?=[./]|$)")
_WITHIN = re.compile(r"[*%]")
_OWN = ("$queue/", "$exchange/", "$share/")
PART_OF_A_LEVEL = (
    "* and % are ordinary characters here: + stands for one whole level, # for all levels below, and nothing stands "
    "for a part of a level"
)


def meant(filter: str) -> str:
    """Returns what to say about wildcards of another system in a filter; empty: it has none."""
    own = next((prefix for prefix in _OWN if filter.startswith(prefix)), "")
    rest = filter[len(own) :]
    dotted = "/" not in rest and "." in rest and own in ("", "$queue/")
    foreign = _OTHERS.search(rest)
    mixed = dotted and re.search(r"(^|\.)[#+](\.|$)", rest) is not None
    if not foreign and not mixed:
        if own or not _WITHIN.search(rest):
            return ""
        return PART_OF_A_LEVEL
    levels = re.split(r"[./]" if dotted else "/", rest)
    spelled: list[str] = []
    for number, level in enumerate(levels, 1):
        if level in ("**", "#") or (level == ">" and number == len(levels)):
            spelled.append("#")
            break  # it can only be the last level
        spelled.append("+" if level in ("*", "%", ">") else level)
    word = foreign[2] if foreign else "."
    what = f"{word} is a wildcard elsewhere, and an ordinary character here" if foreign else (
        "levels are separated by /, not by ."
    )  # fmt: skip
    return f'{what}; write "{own}{"/".join(spelled)}"'


def with_hint(error: str, filter: object) -> str:
    """Returns the error about an invalid filter, with what was probably meant."""
    hint = meant(filter) if isinstance(filter, str) else ""
    return f"{error} ({hint})" if hint else error
