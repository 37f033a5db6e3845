"""Frames that the broker sends besides messages."""

from __future__ import annotations

from collections.abc import Mapping

from headway.wire.stomp.versions import OFFERED, V1_0, Version, written

HEARTBEAT = b"\n"
MESSAGE_CHARS_MAX = 200


def connected(version: Version, session: str, server: str, heart_beat: tuple[int, int]) -> bytes:
    every, wanted = heart_beat
    headers = {"version": str(version), "session": session, "server": server, "heart-beat": f"{every},{wanted}"}
    return written("CONNECTED", headers, V1_0)  # which escapes nothing


def receipt(receipt_id: str, version: Version, told: Mapping[str, str] | None = None) -> bytes:
    return written("RECEIPT", {"receipt-id": receipt_id, **(told or {})}, version)


def error(text: str, version: Version | None, receipt_id: str | None = None, heading: str = "") -> bytes:
    """Returns an ERROR frame, after which the connection ends. ``version`` None: none could be agreed on."""
    headers: Mapping[str, str] = {"message": heading or text[:MESSAGE_CHARS_MAX], "content-type": "text/plain"}
    if version is None:
        headers = {**headers, "version": OFFERED}
    if receipt_id is not None:
        headers = {**headers, "receipt-id": receipt_id}
    body = f"{text}\n".encode("utf-8", "replace")
    return written("ERROR", {**headers, "content-length": str(len(body))}, V1_0 if version is None else version, body)
