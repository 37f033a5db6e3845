"""Patience: what a consumer asks for, and whether it is granted, where no answer has room to say so."""

from __future__ import annotations

import logging

from headway.core.base import format_duration
from headway.core.consumer import Subscription

log = logging.getLogger("headway")


def log_patience(subscription: Subscription) -> None:
    """Logs that a consumer may not hold its jobs for as long as it asked for."""
    asked_s = subscription.request.options.patience_s
    if asked_s and asked_s != subscription.patience_s:
        log.warning(
            "%s on %s: asked for patience of %s and was granted %s, by policy %r", subscription.session.client,
            subscription.filter, format_duration(asked_s), format_duration(subscription.patience_s),
            subscription.case.policy.name,
        )  # fmt: skip
