"""The request of a view: which records it wants, on what terms."""

from __future__ import annotations

import secrets
from typing import Literal

import msgspec

from headway.client.broker_address import BrokerAddress, read_broker_address
from headway.core.base import ConfigError, parse_duration
from headway.core.message import BadKey, BadTopic, compile_key, validate_filter
from headway.core.selector import BadOrder, compile_ordering

BEATS = 4
"""How often a view asks the broker, within the time after which it counts as stale, whether it is current."""
RECEIVE_MAX = 64
"""Deliveries in flight of a view with patience; without it nothing is acknowledged."""
NO_RECEIVE_MAX = 65_535

WhenFull = Literal["wait", "conflate"]


class Request(msgspec.Struct, frozen=True):
    """The terms of a view, checked. The texts of durations are as in a config file (``500ms``, ``20m``)."""

    address: BrokerAddress
    filter: str
    key: str
    client_id: str
    options: tuple[tuple[str, str], ...]
    qos: int
    receive_max: int
    lease_s: float
    stale_after_s: float
    max_queued: int
    when_full: WhenFull
    order_by: str | None = None
    """The order of a page; None: the view has all that matches."""
    delta: bool = False
    """The broker sends only what changes of a key."""

    @property
    def beat_s(self) -> float:
        """Returns the time between two questions whether the view is current. Each renews its lease."""
        return min(self.stale_after_s / BEATS, self.lease_s / 3)


def make_request(
    url: str,
    filter: str,
    *,
    key: str = "topic",
    selector: str | None = None,
    conflate: str | None = None,
    policy: str | None = None,
    patience: str | None = None,
    delta: bool = False,
    order_by: str | None = None,
    top: int | None = None,
    skip: int = 0,
    lease: str = "30s",
    stale_after: str = "5s",
    max_queued: int = 10_000,
    when_full: WhenFull = "wait",
    client_id: str | None = None,
) -> Request:
    """Returns the checked request. Raises ConfigError, which says what is wrong with which argument."""
    try:
        validate_filter(filter)
        compile_key(key)
    except (BadTopic, BadKey) as error:
        raise ConfigError(str(error)) from None
    lease_s, stale_after_s = _seconds("lease", lease), _seconds("stale_after", stale_after)
    if stale_after_s >= lease_s:
        raise ConfigError(f"stale_after={stale_after!r} has to be less than lease={lease!r}")
    if max_queued < 1:
        raise ConfigError(f"max_queued={max_queued}: at least 1")
    if when_full not in ("wait", "conflate"):
        raise ConfigError(f"when_full={when_full!r}: 'wait' or 'conflate'")
    page = _page(order_by, top, skip)
    if delta and page:
        raise ConfigError("delta does not go together with top: a page has whole records")
    options = [("offsets", "true"), ("expiries", "true"), ("key", key), ("lease", lease)]
    asked = {"selector": selector, "conflate": conflate, "policy": policy, "patience": patience}
    if selector is not None and top is None:
        options.append(("out_of_focus", "true"))
    if delta:
        options.append(("delta", "true"))
    given = [(name, value) for name, value in asked.items() if value is not None]
    if patience is not None:
        _seconds("patience", patience)
    if conflate not in (None, "off") and _seconds("conflate", conflate) >= stale_after_s:
        raise ConfigError(f"conflate={conflate!r} has to be less than stale_after={stale_after!r}")
    acknowledges = patience is not None
    return Request(
        read_broker_address(url), filter, key, client_id or f"view-{secrets.token_hex(6)}",
        (*options, *given, *page),
        int(acknowledges), RECEIVE_MAX if acknowledges else NO_RECEIVE_MAX, lease_s, stale_after_s, max_queued,
        when_full, dict(page).get("order_by"), delta,
    )  # fmt: skip


def _page(order_by: str | None, top: int | None, skip: int) -> list[tuple[str, str]]:
    """Returns the options of a page; none if the view is to have all that matches."""
    if top is None:
        if order_by is not None or skip:
            raise ConfigError("order_by and skip are those of a page: say top, the number of its records")
        return []
    if top < 1 or skip < 0:
        raise ConfigError(f"top={top}, skip={skip}: at least 1, and 0")
    try:
        order = compile_ordering(order_by or "offset")
    except BadOrder as error:
        raise ConfigError(str(error)) from None
    return [("order_by", order.text), ("top", str(top)), ("skip", str(skip))]


def _seconds(name: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"{name}={text!r}: {error}") from None
    if seconds <= 0 and name != "conflate":
        raise ConfigError(f"{name}={text!r}: has to be more than nothing")
    return seconds
