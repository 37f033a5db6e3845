"""Merging: records that are patches are merged onto the latest records of their keys, before they are published.

From then on each is a whole record: the journal, states, queues and subscribers have no other. A patch whose key has no
record in the state is refused. It may be that the key was evicted, or that the topic is not recorded and the broker
was started anew: a record of the patch alone would lack fields, and nobody would know.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import State
from headway.core.message import MERGE, BadPatch, Properties, Record, Run, merged, says_delete

SLICE_RECORDS = 64
SLICE_BYTES = 256 * 1024
"""Patches that are merged in one step, and the bytes of the records that they are merged onto."""


class Merged(NamedTuple):
    """``run`` has whole records; None: all are refused. ``looked_bytes``: the bytes that were read and written."""

    run: Run | None
    dropped: int
    refused: Refused | None
    looked_bytes: int


def merge_slice(state: State, run: Run) -> int:
    """Returns how many patches of a run are merged in one step."""
    most, size = min(SLICE_RECORDS, len(run)), 0
    for index in range(most):
        payload = run.payload(index)
        before = state.current(run.topic, state.key.find(run.topic, run.properties, payload))
        size += len(payload) + (0 if before is None else len(before.payload))
        if size > SLICE_BYTES:
            return max(1, index)
    return most


def merged_run(state: State, run: Run, now: float) -> Merged:
    """Merges the patches of a run, in their order, onto the records of the state."""
    bodies: list[int] = []
    ends: list[int] = []
    data = bytearray()
    latest: dict[str | None, bytes] = {}
    refused, looked_bytes = None, 0
    for index in range(len(run)):
        try:
            key, payload, base_bytes = _merge(state, run, index, latest, now)
        except (BadPatch, Refused) as error:
            refused = error if isinstance(error, Refused) else Refused(Reason.MALFORMED, str(error))
            looked_bytes += run.ends[index] - run.bodies[index]
            continue
        latest[key] = payload
        looked_bytes += base_bytes + len(payload)
        bodies.append(len(data))
        data += payload
        ends.append(len(data))
    if not ends:
        return Merged(None, len(run), refused, looked_bytes)
    whole = Run(
        run.topic, bytes(data), ends, bodies, None, run.qos, run.retain, without_merge(run.properties), run.expires_s,
        run.exchange, run.headers,
    )  # fmt: skip
    whole.publisher, whole.confirmed = run.publisher, run.confirmed
    whole.origin, whole.receipt = run.origin, run.receipt
    return Merged(whole, len(run) - len(ends), refused, looked_bytes)


def _merge(
    state: State, run: Run, index: int, latest: dict[str | None, bytes], now: float
) -> tuple[str | None, bytes, int]:
    """Returns the key, the merged payload, and the bytes that it was merged onto. Raises BadPatch, Refused."""
    if says_delete(run.properties):
        raise BadPatch("a record is either a patch (merge) or a delete")
    patch = run.payload(index)
    if not patch:
        raise BadPatch("a patch without payload: to delete the key, leave out the property merge")
    key = state.key.find(run.topic, run.properties, patch)
    if key is None:
        raise BadPatch(f"the patch has no key ({state.key.text})")
    base = latest.get(key)
    if base is None:
        base = _known(state, state.current(run.topic, key), key, now)
    return key, merged(base, patch), len(base)


def _known(state: State, record: Record | None, key: str, now: float) -> bytes:
    """Returns the payload that a patch is merged onto. Raises Refused."""
    if record is None or record.expires_s <= now:
        why = f"; {state.evicted_records} keys were evicted" if state.evicted_records else ""
        text = f"there is no record of the key {key[:60]!a} that a patch could be merged onto{why}"
        raise Refused(Reason.NOT_FOUND, f"{text}: publish a whole record")
    return record.payload


def without_merge(properties: Properties) -> Properties:
    return msgspec.structs.replace(properties, user=tuple(pair for pair in properties.user if pair[0] != MERGE))
