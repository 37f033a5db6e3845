"""Merging publishes: a patch becomes a whole record before anybody has it, or is refused and nobody has it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from hypothesis import given
from hypothesis import strategies as st
from tests.core.stage import Client, Stage
from tests.sim.images.truth import merge

from headway.core import forms as merging
from headway.core.base.errors import Reason, Refused
from headway.core.message.keys import MERGED_BYTES_MAX, BadPatch, merged
from headway.core.message.record import Properties, Run

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "/k"\n'
MERGE = (("merge", "true"),)


def runs_of(
    client: Client, *payloads: bytes, user: tuple[tuple[str, str], ...] = MERGE, topic: str = "t/x"
) -> list[Run]:
    data = b"".join(encode_publish(topic, payload, properties=Properties(user=user)) for payload in payloads)
    return client.runs(data)


def put(client: Client, *payloads: bytes, user: tuple[tuple[str, str], ...] = MERGE, topic: str = "t/x") -> None:
    client.stage.broker.publish(client.session, runs_of(client, *payloads, user=user, topic=topic), client.stage.now)


def test_subscribers_get_whole_records_and_patches_in_one_read_build_on_each_other() -> None:
    stage = Stage(TOPIC)
    watcher, publisher = stage.consumer("watcher", "t/#"), stage.client("publisher")
    put(publisher, b'{"k":"a","price":1.50,"big":12345678901234567890.123,"o":{"x":1,"y":2}}', user=())
    put(publisher, b'{"k":"a","n":1}', b'{"k":"a","n":2,"o":{"x":null,"z":[1,null]}}', user=(*MERGE, ("desk", "7")))
    stage.turn()
    assert watcher.payloads[1:] == [
        '{"k":"a","price":1.50,"big":12345678901234567890.123,"o":{"x":1,"y":2},"n":1}',
        '{"k":"a","price":1.50,"big":12345678901234567890.123,"o":{"y":2,"z":[1,null]},"n":2}',
    ]
    assert [seen.properties.user for seen in watcher.seen[1:]] == [(("desk", "7"),)] * 2
    asker = stage.consumer("asker", "t/#", options={"query": "true"})
    stage.turn()
    assert asker.payloads[1] == watcher.payloads[2]


@pytest.mark.parametrize(
    ("patch", "reason", "text"),
    [
        (b'{"k":"b","n":1}', Reason.NOT_FOUND, "no record of the key 'b'"),
        (b'{"k":"gone","n":1}', Reason.NOT_FOUND, "no record of the key 'gone'"),
        (b'{"n":1}', Reason.MALFORMED, "has no key"),
        (b'{"k":"a","n":', Reason.MALFORMED, "has no key"),
        (b'{"k":"a","n":"\xff"}', Reason.MALFORMED, "no JSON merge patch"),
        (b"[1]", Reason.MALFORMED, "has no key"),
        (b"", Reason.MALFORMED, "without payload"),
        (b'{"k":"a","n":' + b'{"x":' * 40 + b"1" + b"}" * 41, Reason.MALFORMED, "32 levels"),
        (b'{"k":"a","n":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Reason.MALFORMED, "no JSON merge patch|no key"),
        (b'{"k":"a","n":"' + b"x" * MERGED_BYTES_MAX + b'"}', Reason.MALFORMED, "are allowed"),
    ],
)
def test_what_cannot_be_merged_is_refused_and_nobody_gets_it(patch: bytes, reason: Reason, text: str) -> None:
    stage = Stage(TOPIC)
    watcher, publisher = stage.consumer("watcher", "t/#"), stage.client("publisher")
    put(publisher, b'{"k":"a","v":1}', b'{"k":"gone","v":1}', user=())
    put(publisher, b"", user=(("key", "gone"),))
    before = stage.broker.registry.sequence
    with pytest.raises(Refused, match=text) as refused:
        put(publisher, patch)
    assert refused.value.reason is reason
    assert stage.broker.registry.sequence == before
    assert publisher.session.refused_records == 1
    stage.turn()
    assert len(watcher.seen) == 3


def test_an_evicted_key_is_not_known_and_loses_no_fields() -> None:
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    (state,) = stage.broker.registry.router.states
    state.bytes_max = 2000
    put(publisher, *(b'{"k":"%d","v":1,"w":2}' % number for number in range(10)), user=())
    assert state.evicted_records
    with pytest.raises(Refused, match="keys were evicted: publish a whole record"):
        put(publisher, b'{"k":"0","v":2}')
    put(publisher, b'{"k":"9","v":2}')


def test_an_expired_record_is_nothing_to_merge_onto() -> None:
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    (run,) = runs_of(publisher, b'{"k":"a","v":1}', user=())
    run.expires_s = stage.now + 1.0
    stage.broker.publish(publisher.session, [run], stage.now)
    stage.run(2.0)
    with pytest.raises(Refused, match="no record of the key"):
        put(publisher, b'{"k":"a","v":2}')


def test_a_delete_is_no_patch_and_the_key_may_lie_deep() -> None:
    stage = Stage('[[topic]]\nfilter = "t/#"\nkey = "/o/k"\n')
    publisher = stage.client("publisher")
    put(publisher, b'{"o":{"k":"a"}}', user=())
    with pytest.raises(Refused, match="either a patch"):
        put(publisher, b'{"o":{"k":"a"}}', user=(*MERGE, ("delete", "1")))
    put(publisher, b'{"o":{"k":"a","b":1}}')
    (state,) = stage.broker.registry.router.states
    record = state.current("t/x", "a")
    assert record is not None
    assert record.payload == b'{"o":{"k":"a","b":1}}'


def test_some_of_a_run_are_refused_and_the_others_are_published() -> None:
    stage = Stage(TOPIC)
    watcher, publisher = stage.consumer("watcher", "t/#"), stage.client("publisher")
    put(publisher, b'{"k":"a","v":1}', user=())
    runs = runs_of(publisher, b'{"k":"a","v":2}', b'{"k":"b","v":2}', b'{"k":"a","w":3}')
    some = stage.broker.intake.publish_some(publisher.session, runs, stage.now, 1000)
    stage.turn()
    assert (some.runs, some.refused and some.refused.reason) == (1, Reason.NOT_FOUND)
    assert watcher.payloads == ['{"k":"a","v":1}', '{"k":"a","v":2}', '{"k":"a","v":2,"w":3}']
    assert publisher.session.refused_records == 1


def test_a_large_run_of_patches_is_merged_in_slices() -> None:
    """Else a read of small patches onto a large record would be one step, however long it takes."""
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    put(publisher, b'{"k":"a","v":"' + b"x" * 100_000 + b'"}', user=())
    runs = runs_of(publisher, *(b'{"k":"a","n":%d}' % number for number in range(500)))
    some = stage.broker.intake.publish_some(publisher.session, runs, stage.now, 100_000)
    assert some.rest is not None
    assert 500 - len(some.rest) <= merging.SLICE_BYTES // 100_000
    assert some.work > 2 * 100_000 // 4096


@pytest.mark.parametrize("value", ["false", "no", "0"])
def test_without_the_property_or_without_a_key_it_is_an_ordinary_record(value: str) -> None:
    stage = Stage(TOPIC)
    watcher, publisher = stage.consumer("watcher", "#"), stage.client("publisher")
    put(publisher, b'{"k":"a","n":1}', user=(("merge", value),))
    put(publisher, b'{"n":1}', topic="other")
    stage.turn()
    assert watcher.payloads == ['{"k":"a","n":1}', '{"n":1}']
    assert watcher.seen[1].properties.user == MERGE


def test_a_retained_patch_is_retained_whole() -> None:
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    put(publisher, b'{"k":"a","v":1}', user=())
    (run,) = runs_of(publisher, b'{"k":"a","n":1}')
    run.retain = True
    stage.broker.publish(publisher.session, [run], stage.now)
    late = stage.consumer("late", "t/#")
    stage.turn()
    assert late.payloads == ['{"k":"a","v":1,"n":1}']


NAMES = st.sampled_from(["a", "b", "\u00e9", "~/", ""])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12,
)
OBJECTS: Any = st.dictionaries(NAMES, VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_it_merges_as_the_rfc_says(base: Any, patch: Any) -> None:
    found = merged(json.dumps(base).encode(), json.dumps(patch).encode())
    assert json.loads(found) == merge(base, patch)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_anything_is_merged_or_refused(base: bytes, patch: bytes) -> None:
    with suppress(BadPatch):
        json.loads(merged(base, patch))
