"""Items that the decoder finds in a client's bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headway.core.message import Run
from headway.wire.stomp.versions import Version

Headers = Mapping[str, str]
"""Headers as the client means them, unescaped; the first of each name."""


class Connect(NamedTuple):
    """CONNECT or STOMP. ``version`` None: the client accepts none of ours."""

    headers: Headers
    version: Version | None


class Frame(NamedTuple):
    """Any other frame but SEND."""

    command: str
    headers: Headers


class Acks(NamedTuple):
    """Neighbouring ACK frames that name a delivery and nothing else that matters: no receipt, no transaction."""

    ids: tuple[int, ...]


class Sent(NamedTuple):
    """Neighbouring SEND frames that differ in their bodies alone. Of the run only bodies are set, and where it goes, if
    the destination alone says that."""

    headers: Headers
    run: Run


Item = Connect | Frame | Acks | Sent
