"""A permission: what a user, a group, or everybody may do, as it stands in the configuration.

All names that a permission speaks of have the form of topics:

- MQTT's topics, which are the routing keys of AMQP's exchange ``amq.topic``, stand for themselves;
- ``$queue/NAME`` is a queue. The words of its name are levels, too: ``$queue/jobs/#`` covers ``jobs.eu``;
- ``$exchange/NAME`` is an exchange, and ``$exchange/NAME/KEY`` what is published to it under a routing key;
- ``$cursor/NAME`` and ``$writer/NAME`` are those of the HTTP API.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

QUEUES = "$queue/"
EXCHANGES = "$exchange/"


class Operation(StrEnum):
    CONNECT = "connect"
    """To connect; its filters are for client ids."""
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    """To read in any way: subscriptions, consumers, bindings, records over HTTP."""
    DECLARE = "declare"
    """To make, change and delete what has a name."""
    ADMIN = "admin"
    """To ask and change the broker: ``read`` and ``change``."""


class Permission(msgspec.Struct, frozen=True):
    """One ``[[permission]]``. In its filters ``%u`` stands for the user's name, and ``%c`` for the client id."""

    user: str | None = None
    group: str | None = None
    """Neither: everybody, clients without a user name included."""
    connect: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    declare: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    def filters(self, operation: Operation) -> tuple[str, ...]:
        filters: tuple[str, ...] = getattr(self, operation)
        return filters
