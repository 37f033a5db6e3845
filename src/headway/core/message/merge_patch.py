"""JSON merge patches (RFC 7396): a patch has the members that change; null takes a member away.

Members that a patch does not name keep their bytes: they are never decoded, so numbers stay as their publisher wrote
them. Names that occur twice count once, the last time.
"""

from __future__ import annotations

import msgspec

from headway.core.base import HeadwayError, Reason
from headway.core.message.deletes import says
from headway.core.message.keys import NOT_JSON
from headway.core.message.record import Properties

MERGE = "merge"
"""The user property that says that a payload is a patch."""
DELTA = "delta"
"""The event of a record that has only what has changed."""
DEPTH_MAX = 32
"""Levels of objects in a patch, and of objects that are compared."""
MERGED_BYTES_MAX = 1024 * 1024
Members = dict[str, msgspec.Raw]

_members = msgspec.json.Decoder(Members).decode
_anything = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NULL = b"null"


class BadPatch(HeadwayError):
    """A patch that cannot be merged: it is none, or its result would be too large."""

    reason = Reason.MALFORMED


def says_merge(properties: Properties) -> bool:
    """Tells whether a record with these properties is a patch."""
    return bool(properties.user) and says(properties, MERGE)


def merged(base: bytes, patch: bytes, *, bytes_max: int = MERGED_BYTES_MAX, depth_max: int = DEPTH_MAX) -> bytes:
    """Returns the JSON object ``base`` with the patch merged onto it. Raises :class:`BadPatch`. The limits are for what
    publishers send; a client that applies deltas has higher ones."""
    try:
        _anything(patch)  # what is only passed on below is not looked at closely
        changes = _members(patch)
    except NOT_JSON:
        raise BadPatch("the payload is no JSON merge patch: that is a JSON object") from None
    try:
        members = _members(base)
    except NOT_JSON:
        raise BadPatch("the latest record of the key is no JSON object: publish a whole record") from None
    result = _encode(_merge(members, changes, depth_max))
    if len(result) > bytes_max:
        raise BadPatch(f"the merged record would have {len(result):,} bytes; {bytes_max:,} are allowed")
    return result


def _merge(members: Members, changes: Members, depth: int) -> Members:
    if not depth:
        raise BadPatch(f"a patch has {DEPTH_MAX} levels of objects at most")
    for name, value in changes.items():
        text = bytes(value)
        if text == _NULL:
            members.pop(name, None)
        elif text[:1] == b"{":
            inner = bytes(members[name]) if name in members else b""
            known = _members(inner) if inner[:1] == b"{" else {}
            members[name] = msgspec.Raw(_encode(_merge(known, _members(text), depth - 1)))
        else:
            members[name] = value
    return members


def difference(before: bytes, after: bytes, keep: str | None = None) -> bytes | None:
    """Returns the patch that makes the JSON object ``after`` of ``before``, with the member ``keep`` in any case. None:
    one of them is no JSON object, or no patch can say it, because a patch cannot set a member to null."""
    try:
        before.decode()
        after.decode()
        known, members = _members(before), _members(after)
        patch = _difference(known, members, DEPTH_MAX)
    except NOT_JSON:
        return None
    if patch is None:
        return None
    if keep is not None and keep in members:
        patch.setdefault(keep, members[keep])
    return _encode(patch)


def _difference(before: Members, after: Members, depth: int) -> Members | None:
    patch = {name: msgspec.Raw(_NULL) for name in before if name not in after}
    for name, value in after.items():
        text, old = bytes(value), bytes(before.get(name, b""))
        if text == old:
            continue
        if text == _NULL:
            return None
        if text[:1] == b"{" and old[:1] == b"{":
            inner = _difference(_members(old), _members(text), depth - 1) if depth else None
            if inner is None:
                return None
            patch[name] = msgspec.Raw(_encode(inner))
        elif text[:1] == b"{" and _NULL in text:
            return None
        else:
            patch[name] = value
    return patch
