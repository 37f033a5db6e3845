"""GigaSpaces XAP: its system properties, wherever they stand, and ``services.config``.

Properties are read in a file of properties, a start script (``-Dcom.gs…=…``), Spring's XML, or a Jini configuration,
whose ``NIOConfiguration(…)`` has the same limits by position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.migration.draft import Draft, SoAnyway, rule, said, units
from headway.migration.formats import File, Node, Where, read_embedded
from headway.migration.origins.origin import Origin, Score

LRMI = "com.gs.transport_protocol.lrmi."
SLOW = f"{LRMI}slow-consumer."
_NAME = r"(?:com\.gs|com\.gigaspaces|space-config|cluster-config)\.[\w.-]*[\w]"
_NIO = re.compile(r"NIOConfiguration\s*\(([^()]*)\)")
_POSITIONS = ((10, (7, 8, 9)), (9, (6, 7, 8)))
"""Where throughput, latency and retries are, by the number of arguments (with and without ``isMultiplex``)."""
NAME_SCORE = 100
"""The weight of a name: nobody else has such names, and Spring's elements are around them."""
THROUGHPUT, LATENCY_MS, RETRIES = 5000, 500, 3
SWEEP_MS = 200
"""Tests that are closer together than looks usually are need more looks."""


def parse(file: File) -> Node:
    root = read_embedded(file, _NAME)
    text = file.text()
    for match in _NIO.finditer(text):
        arguments = [part.strip().strip('"') for part in match[1].split(",")]
        where = Where(file.name, text.count("\n", 0, match.start()) + 1)
        has_flag = len(arguments) > 3 and arguments[3] in ("true", "false")
        wanted, places = _POSITIONS[0] if has_flag else _POSITIONS[1]
        if len(arguments) < wanted:
            continue
        values = [arguments[place] for place in places]
        if all(value.isdecimal() for value in values) and values[0] != "0":
            Node(f"{SLOW}enabled", where, "true", root)
            for name, value in zip(("throughput", "latency", "retries"), values, strict=True):
                Node(f"{SLOW}{name}", where, value, root)
    return root


def read(roots: Sequence[Node], draft: Draft) -> None:
    found = {name: [node for root in roots for node in root.all(f"{SLOW}{name}")]
             for name in ("enabled", "throughput", "latency", "retries")}  # fmt: skip
    nodes = [node for some in found.values() for node in some]
    first = {name: some[0] for name, some in found.items() if some}
    with draft.reading(*nodes):
        if nodes:
            _slow(first, draft)
        for name, some in found.items():
            for node in some[1:]:
                if node.text == first[name].text:
                    draft.carried(node)
                else:
                    draft.lost(node, why=f"an earlier line, {first[name].where}, says {first[name].shown}")
    for root in roots:
        draft.leftovers(root)


def _slow(first: dict[str, Node], draft: Draft) -> None:
    enabled = first.get("enabled")
    rate, tests = units.number(first.get("throughput"), THROUGHPUT), units.number(first.get("retries"), RETRIES)
    for name, value in (("throughput", rate), ("retries", tests)):
        units.not_negative(value, first.get(name))
    if rate < 1:
        raise SoAnyway("nobody takes less than nothing, so nobody is slow")
    latency = first.get("latency")
    time = max(1, units.not_negative(units.milliseconds(latency, default_ms=LATENCY_MS), latency))
    more: dict[str, object] = {"for_": units.toml_duration(time)}
    if tests > 0:
        more["retries"] = min(tests, 1000)
    more["excuse_pauses"] = False
    made = rule("disconnect", {"drain_rate": f"<{rate}B/s"}, name="slow consumer", **more)
    if enabled is None or not units.true(enabled):
        made["enforce"] = False
    elif 0 < time < tests * SWEEP_MS:
        draft.put_sweep(min(100, max(1, time // tests)), latency, *first.values())
    source = "; ".join(said(node) for node in first.values())
    draft.policy("slow consumers", ("#",), "").add(made, source)
    draft.carried(*first.values())


class _Xap(Origin):
    """The origin whose names stand anywhere in a file of any form."""

    __slots__ = ()

    def score(self, file: File) -> Score:
        text = file.raw.decode(errors="replace")
        names = sorted(set(re.findall(_NAME, text)))
        return Score(NAME_SCORE * (len(names) + bool(_NIO.search(text))), tuple(names), len(names))


XAP = _Xap("xap", "XAP", ("gigaspaces",), parse, read)
