"""Properties of records that the program publishes, checked as those of clients are when they are decoded: what is in
the log has to fit every protocol, as the next to read it is somebody else's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.core.base import Reason, Refused
from headway.core.message import NO_PROPERTIES, BadTopic, Properties, validate_topic

TEXT_BYTES_MAX = 65_535
EXPIRY_S_MAX = 0xFFFF_FFFF


def check_text(what: str, text: object) -> None:
    """Raises Refused for what MQTT has no text for."""
    if not isinstance(text, str):
        raise _wrong(f"{what}: a {type(text).__name__} is no text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _wrong(f"{what}: {text[:100]!a} is not Unicode: there is half a character in it") from None
    if size > TEXT_BYTES_MAX or "\0" in text:
        raise _wrong(f"{what}: a text has {TEXT_BYTES_MAX} bytes at most, and no NUL")


def check_qos(qos: object) -> None:
    """Raises Refused."""
    if qos not in (0, 1, 2):
        raise _wrong(f"qos: {qos!r} is none of 0, 1 and 2")


def check_expiry(expiry: object) -> None:
    """Raises Refused."""
    if expiry is not None and not (isinstance(expiry, int | float) and 0 <= expiry <= EXPIRY_S_MAX):
        raise _wrong(f"expiry: {expiry!r} is no number of seconds from 0 to {EXPIRY_S_MAX}")


def properties_of(
    content_type: str | None, response_topic: str | None, correlation_data: bytes | None,
    user: Mapping[str, str] | Iterable[tuple[str, str]], expiry: float | None,
) -> Properties:  # fmt: skip
    """Raises Refused."""
    if content_type is not None:
        check_text("content_type", content_type)
    if response_topic is not None:
        check_text("response_topic", response_topic)
        try:
            validate_topic(response_topic)
        except BadTopic as error:
            raise _wrong(f"response_topic: {error}") from None
    if correlation_data is not None and not (
        isinstance(correlation_data, bytes) and len(correlation_data) <= TEXT_BYTES_MAX
    ):
        raise _wrong(f"correlation_data: it is bytes, {TEXT_BYTES_MAX} at most")
    lifetime_ms = None if expiry is None else int(expiry * 1000)
    found = Properties(None, content_type, response_topic, correlation_data, _pairs(user), None, lifetime_ms)
    return NO_PROPERTIES if found == NO_PROPERTIES else found


def _pairs(user: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(user.items() if isinstance(user, Mapping) else user)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _wrong(f"user: {pair!r:.100} is no pair of texts")
        for text in pair:
            check_text("user", text)
    return pairs


def _wrong(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)
