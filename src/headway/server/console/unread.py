"""A console that is cut because it does not read: a verdict as on any consumer, made from what its socket tells."""

from __future__ import annotations

import os
import socket
import time

from aiohttp import web

from headway.core.base import Reason, format_duration, format_size
from headway.core.policy import Action, ActionKind, DecisionKind, Sample, Verdict, explain_cause, find_cause
from headway.server.engine import Engine
from headway.server.http import USER, address_of, unsent_bytes
from headway.server.progress import TcpInfo

FILTER = "/v1/console/events"
LISTENER = "admin"


def record_cut(engine: Engine, request: web.Request, still_s: float) -> Verdict:
    """Makes the verdict on a console that has taken nothing for so long, and keeps it with all others."""
    sample = _sample(request, still_s)
    book, user = engine.broker.verdicts, request[USER]
    address = address_of(request)
    client = f"console of {user or address}"
    who = f"{user} at {address}" if user else address
    text = (
        f"the console of {who} was disconnected: it has read nothing for {format_duration(still_s)}, and "
        f"{format_size(sample.lag_bytes)} of its last frame are unsent ({explain_cause(sample)})"
    )
    verdict = Verdict(
        number=book.next_number(), time_s=engine.now(), wall_s=time.time(), client=client, filter=FILTER,
        listener=LISTENER, policy="", rule=0, kind=DecisionKind.FIRE, action=Action(ActionKind.DISCONNECT),
        reason=Reason.BLOCKED, cause=find_cause(sample), enforced=True, readings=(), window_s=still_s,
        held_s=still_s, sample=sample, text=text,
    )  # fmt: skip
    book.add(verdict, user)
    return verdict


def _sample(request: web.Request, still_s: float) -> Sample:
    unsent, info = unsent_bytes(request), _info(request.get_extra_info("socket"))
    closed = info is not None and info.window_closed
    return Sample(
        lag_bytes=unsent, lag_age=still_s, blocked_time=still_s, unread_time=still_s, held_bytes=unsent,
        drain_share=0.0, peer_window_closed=closed,
        retransmitting=info is not None and not closed and info.retransmits > 0,
    )  # fmt: skip


def _info(found: socket.socket | None) -> TcpInfo | None:
    """Returns what the kernel knows of a connection; None if it is over, or there is no socket."""
    if found is None:
        return None
    try:
        with socket.socket(fileno=os.dup(found.fileno())) as sock:  # the loop's own socket has no options
            return TcpInfo(sock)
    except OSError:
        return None
