"""Apache Qpid's broker in C++: ``qpidd.conf``, a setting in each line."""

from __future__ import annotations

from collections.abc import Sequence

from headway.migration.draft import Draft, Unreadable, number, rule, said, size, toml_duration, toml_size, true
from headway.migration.formats import File, Node, read_lines
from headway.migration.origins.origin import Origin

JOURNAL = "/var/lib/headway"
DEFAULT_LIMIT = 104_857_600
STOP, RESUME = 80, 70
"""Percent of the limit of a queue at which its publishers are stopped, and go on."""


def parse(file: File) -> Node:
    return read_lines(file, equals=True)


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.open = False  # auth is yes by default
    for root in roots:
        _listener(root, draft)
        for node in root.all("data-dir", "store-dir"):
            draft.put("journal", "path", JOURNAL, node, "in a folder of its own")
        for node in root.all("no-data-dir", "tcp-nodelay"):
            draft.same(node)
        _flow(root, draft)
        draft.leftovers(root)


def _listener(root: Node, draft: Draft) -> None:
    port, host, auth = (root.child(name) for name in ("port", "interface", "auth"))
    if auth is not None:
        with draft.reading(auth):
            draft.open = not true(auth)
            if draft.open:
                draft.same(auth, why="clients may come without a name")
            else:
                draft.lost(auth)
    limits = root.all("max-connections", "max-negotiate-time")
    if port is None and not limits:
        return
    with draft.reading(*([port] if port is not None else [])):
        if port is not None:
            made = draft.listener("qpid", "amqp", host.text if host is not None else "", number(port), port)
            if made is not None and host is not None:
                draft.carried(host)
    for node in limits:
        with draft.reading(node):
            count = number(node)
            value: int | str = count
            if node.name == "max-connections" and 1 <= count <= 1_000_000:
                key = "connections_max"
            elif node.name == "max-negotiate-time" and 10 <= count <= 3_600_000:
                key, value = "connect_timeout", toml_duration(count)
            else:
                raise Unreadable(f"{count} is out of range")
            for one in draft.all_listeners():
                one.put(key, value, said(node))
            draft.carried(node)


def _flow(root: Node, draft: Draft) -> None:
    limit, stop, resume, event = (
        root.child(name)
        for name in (
            "default-queue-limit", "default-flow-stop-threshold", "default-flow-resume-threshold",
            "default-event-threshold-ratio",
        )
    )  # fmt: skip
    given = [node for node in (limit, stop, resume, event) if node is not None]
    if not given:
        return
    with draft.reading(*given):
        most = size(limit) if limit is not None else DEFAULT_LIMIT
        at, until = number(stop) if stop is not None else STOP, number(resume) if resume is not None else RESUME
        ratio = number(event) if event is not None else 0
        if not 0 <= until <= at <= 100 or not 0 <= ratio <= 100:
            raise Unreadable(f"{at} % and {until} %: are no thresholds")
        policy = draft.policy("all queues", ("$queue/+",), "")
        source = "; ".join(said(node) for node in (limit, stop, resume) if node is not None)
        if ratio:
            alert = rule("notify", {"lag_bytes": toml_size(most * ratio // 100)}, name="alert")
            policy.add(alert, said(event or given[0]))
        if most and at:
            policy.add(rule("block_publishers", {"lag_bytes": toml_size(most * at // 100)}, name="flow control",
                            until={"lag_bytes": f"<= {toml_size(most * until // 100)}"}), source)  # fmt: skip
        draft.carried(*given)


QPIDD = Origin("qpidd", "Qpid", ("qpid-cpp",), parse, read)
