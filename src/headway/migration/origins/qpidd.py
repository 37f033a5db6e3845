"""Apache Qpid's broker in C++: ``qpidd.conf``, a setting in each line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headway.migration.draft import Draft, Unreadable, rule, said, units
from headway.migration.formats import Node, read_lines
from headway.migration.origins.origin import Origin

DEFAULT_LIMIT = 104_857_600
MODULES = (
    "amqp", "cluster", "ha", "legacystore", "linearstore", "msgstore", "rdma", "replicating_listener",
    "replication_exchange", "ssl", "store", "watchdog", "xml",
)  # fmt: skip
"""Qpid's own modules that keep nobody out; ``acl`` does."""
STOP, RESUME = 80, 70
"""Percent of the limit of a queue at which its publishers are stopped, and go on."""


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.open = False  # auth is yes by default
    said_by = [node for root in roots for node in root.all("auth")]
    try:
        draft.open = bool(said_by) and not any(_true(node) for node in said_by)
    except Unreadable as error:
        draft.lost(*said_by, why=str(error))
    if draft.open:
        draft.same(*said_by, why="clients may come without a name")
    draft.lost(*said_by)
    for root in roots:
        _listener(root, draft)
        for node in root.all("data-dir", "store-dir"):
            draft.put_journal(node)
        draft.same(*root.all("no-data-dir", "tcp-nodelay"))
        known = (node for node in root.all("load-module") if Path(node.text).name.removesuffix(".so") in MODULES)
        draft.same(*known, why="it is about the inside of Qpid, and keeps nobody out")
        _flow(root, draft)
        draft.leftovers(root)


def _true(node: Node) -> bool:
    return units.true(Node(node.name, node.where, {"y": "yes", "n": "no"}.get(node.text, node.text)))


def _listener(root: Node, draft: Draft) -> None:
    port = root.child("port")
    hosts: list[Node | None] = [*root.all("interface")] or [None]
    for host in hosts:
        if port is None:
            continue
        name = host.text.strip() if host is not None else ""
        if name and name != "localhost" and "." not in name and ":" not in name:
            draft.lost(host, why="the addresses of a network interface are not known here")
            draft.lost(port, why="as its interface")
            continue
        with draft.reading(port):
            made = draft.listener("qpid", "amqp", name, units.number(port), port)
            if made is not None:
                draft.carried(host)
            else:
                draft.lost(host, why="as its port")
    draft.put_everywhere("connections_max", _count, *root.all("max-connections"))
    draft.put_everywhere("connect_timeout", _timeout, *root.all("max-negotiate-time"))


def _count(node: Node) -> int:
    return _within(units.number(node), 1, 1_000_000)


def _timeout(node: Node) -> str:
    return units.toml_duration(_within(units.number(node), 10, 3_600_000))


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise Unreadable(f"{value} is out of range")
    return value


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
        most = units.size(limit) if limit is not None else DEFAULT_LIMIT
        at, until, ratio = units.number(stop, STOP), units.number(resume, RESUME), units.number(event)
        if not 0 <= until <= at <= 100 or not 0 <= ratio <= 100:
            raise Unreadable(f"{at} % and {until} %: are no thresholds")
        policy = draft.policy("all queues", ("$queue/+",), "")
        source = "; ".join(said(node) for node in (limit, stop, resume) if node is not None)
        if ratio:
            alert = rule("notify", {"lag_bytes": units.toml_size(most * ratio // 100)}, name="alert")
            policy.add(alert, said(event or given[0]))
        if most and at:
            policy.add(rule("block_publishers", {"lag_bytes": units.toml_size(most * at // 100)}, name="flow control",
                            until={"lag_bytes": f"<= {units.toml_size(most * until // 100)}"}), source)  # fmt: skip
        draft.carried(*given)


QPIDD = Origin("qpidd", "Qpid", ("qpid-cpp",), partial(read_lines, equals=True), read)
