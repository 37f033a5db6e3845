"""Readiness tells whether a consumer can take one more record now, and what it waits for if it cannot."""

from __future__ import annotations

from math import inf

from headway.core.consumer import GIVEN_UP, PAUSED, Subscription
from headway.core.delivery.frames import holds_back


def has_room(member: Subscription, now: float) -> bool:
    """Tells whether a member can take a record. If only its credit is exhausted, notes since when, for the meters."""
    session = member.session
    outlet = session.outlet
    if outlet.blocked or outlet.out or member.request.polling or member.life is PAUSED:
        return False
    if session.half_sent is not None or session.rest or session.life is GIVEN_UP or holds_back(member):
        return False
    if member.window.timeouts:
        return False  # it still works on deliveries that timed out and were requeued
    if not member.counts_credit or member.credit_left > 0:
        return True
    member.note_exhausted(now)
    member.channel.in_flight_bytes.wait()
    return False


def waits_for_client(member: Subscription) -> bool:
    """Tells whether a member without room has none before its client reads, settles, or lets records flow again."""
    if member.session.outlet.blocked or member.request.polling or member.life is PAUSED or member.window.timeouts:
        return True
    # Who settles something is told by the windows of which it is noted that they are exhausted (acks.py).
    return member.counts_credit and member.credit_left <= 0 and member.credit_exhausted_since_s < inf


def moves(member: Subscription, late_s: float) -> bool:
    """Tells whether a member can take records, or could since ``late_s``."""
    session, outlet = member.session, member.session.outlet
    if session.life is GIVEN_UP or member.life is PAUSED:
        return False
    if outlet.blocked:
        return outlet.progress_s > late_s
    if member.window.timeouts:
        return False
    if member.window.grants and member.credit_left <= 0:
        return member.credit_exhausted_since_s > late_s
    return member.request.qos == 0 or member.credit_left > 0 or member.oldest_unacknowledged_s() > late_s
