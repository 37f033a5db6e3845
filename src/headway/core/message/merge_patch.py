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


def merged(base: bytes, patch: bytes) -> bytes:
    """Returns the JSON object ``base`` with the patch merged onto it. Raises :class:`BadPatch`."""
    try:
        _anything(patch)  # what is only passed on below is not looked at closely
        changes = _members(patch)
    except NOT_JSON:
        raise BadPatch("the payload is no JSON merge patch: that is a JSON object") from None
    try:
        members = _members(base)
    except NOT_JSON:
        raise BadPatch("the latest record of the key is no JSON object: publish a whole record") from None
    result = _encode(_merge(members, changes, DEPTH_MAX))
    if len(result) > MERGED_BYTES_MAX:
        raise BadPatch(f"the merged record would have {len(result):,} bytes; {MERGED_BYTES_MAX:,} are allowed")
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
