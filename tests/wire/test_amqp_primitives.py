"""Field tables: every type as it stands on the wire, against ``pamqp`` where it can be asked; and what is no table."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp import decode, encode

from headway.core.base.errors import ProtocolError, Refused
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.primitives import DEPTH_MAX, AmqpReader, TooManyValues, write_long, write_table
from headway.wire.common import VALUES_MAX


def table(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def long(raw: bytes) -> bytes:
    return table(raw)


TYPES: list[tuple[bytes, object]] = [
    (b"t\x01", True), (b"t\x00", False),
    (b"b\xff", -1), (b"B\xff", 255),
    (b"s\xff\xfe", -2), (b"u\xff\xfe", 65534),
    (b"I\xff\xff\xff\xfd", -3), (b"i\xff\xff\xff\xfd", 2**32 - 3),
    (b"l" + b"\xff" * 8, -1), (b"L\x7f" + b"\xff" * 7, 2**63 - 1),
    (b"f\x3f\x80\x00\x00", 1.0), (b"d" + struct.pack(">d", 0.1), 0.1),
    (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")), (b"D\x00\xff\xff\xff\xfe", Decimal(-2)),
    (b"D\xff\x00\x00\x00\x01", Decimal(1).scaleb(-255)),
    (b"S" + long("schön".encode()), "schön"), (b"S" + long(b"\xff\xfe"), b"\xff\xfe"),
    (b"x" + long(b"\x00\xff"), bytearray(b"\x00\xff")),
    (b"A" + table(b"b\x01S" + long(b"two") + b"A" + table(b"")), [1, "two", []]),
    (b"T" + (1_700_000_000).to_bytes(8, "big"), datetime.fromtimestamp(1_700_000_000, UTC)),
    (b"F" + table(b"\x01aF" + table(b"\x00V")), {"a": {"": None}}),
    (b"V", None), (b"\x00", None),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "value"), TYPES, ids=[row[0][:2].hex() for row in TYPES])
class TestEveryType:
    def test_read(self, raw: bytes, value: object) -> None:
        data = table(b"\x04name" + raw + b"\x05after" + b"t\x01")
        reader = AmqpReader(data)
        found = reader.table("headers")
        assert found == {"name": value, "after": True}
        assert type(found["name"]) is type(value)
        assert reader.pos == len(data)

    def test_pamqp_reads_the_same(self, raw: bytes, value: object) -> None:
        assert decode.field_table(table(b"\x04name" + raw))[1] == {"name": value}

    def test_written_and_read_again(self, raw: bytes, value: object) -> None:
        data = write_table({"name": value})
        found = AmqpReader(data).table("headers")["name"]
        assert found == value
        assert type(found) is type(value)
        assert decode.field_table(data) == (len(data), {"name": value})

    def test_cut_short_anywhere(self, raw: bytes, value: object) -> None:
        data = b"\x04name" + raw
        for end in range(1, len(data)):
            with pytest.raises(ProtocolError, match="ends within its headers") as error:
                AmqpReader(table(data[:end]) + b"more" * 10).table("headers")
            assert error.value.code == ReplyCode.SYNTAX_ERROR


def test_what_pamqp_writes_is_read() -> None:
    values: dict[str, Any] = {
        "a": 1, "b": 300, "c": 70_000, "d": 2**40, "e": "text", "f": [1, {"g": None}], "h": True, "i": 0.5,
        "j": Decimal("-0.5"), "k": bytearray(b"\xff"), "l": datetime(2024, 2, 3, tzinfo=UTC),
    }  # fmt: skip
    assert AmqpReader(encode.field_table(values)).table("headers") == values


def test_a_double_stays_one() -> None:
    """As ``pamqp`` writes it, it does not."""
    assert AmqpReader(write_table({"x": 0.1})).table("headers") == {"x": 0.1}


def test_a_time_that_is_none_is_a_number() -> None:
    """Milliseconds, or worse, where seconds should be."""
    for value in (1_700_000_000_000_000, 2**64 - 1):
        assert AmqpReader(table(b"\x01tT" + value.to_bytes(8, "big"))).table("headers") == {"t": value}


def nested(depth: int, tag: bytes) -> bytes:
    raw = b""
    for _ in range(depth):
        raw = (b"\x01a" if tag == b"F" else b"") + tag + table(raw)
    return table(b"\x01a" + raw[2:] if tag == b"F" else b"\x01a" + raw)


@pytest.mark.parametrize("tag", [b"F", b"A"])
def test_tables_in_tables(tag: bytes) -> None:
    AmqpReader(nested(DEPTH_MAX, tag)).table("headers")
    for depth in (DEPTH_MAX + 1, 5000):
        with pytest.raises(ProtocolError, match=f"more than {DEPTH_MAX} tables") as error:
            AmqpReader(nested(depth, tag)).table("headers")
        assert error.value.code == ReplyCode.SYNTAX_ERROR


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x01aZ", "unknown type 0x5a"),
        (b"\x01aF\xff\xff\xff\xff", "ends within its headers"),
        (b"\x01\xffV", "not UTF-8"),
        (b"\x01aF\0\0\0\x03\x01bS" + long(b"past the inner end"), "ends within its headers"),
    ],
)
def test_what_is_no_table(raw: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as error:
        AmqpReader(table(raw)).table("headers")
    assert error.value.code == ReplyCode.SYNTAX_ERROR


def test_a_table_of_very_many_entries_takes_no_more_than_its_share() -> None:
    """Once for each entry, not for each pair of them: told by what is read, not by the clock."""
    reads = 0

    class Counted(bytes):
        def __getitem__(self, key: Any) -> Any:
            nonlocal reads
            reads += 1 if isinstance(key, int) else len(range(*key.indices(len(self))))
            return super().__getitem__(key)

    AmqpReader(Counted(table(b"\x00V" * VALUES_MAX))).table("headers")
    assert reads < 10 * VALUES_MAX


@pytest.mark.parametrize("entries", [
    b"\x00V" * (VALUES_MAX + 1),
    b"\1aA" + write_long(b"V" * VALUES_MAX),
    b"\1aA" + write_long(b"F\0\0\0\0" * VALUES_MAX),
], ids=["flat", "array", "tables"])  # fmt: skip
def test_a_table_has_an_end_of_its_values_with_all_that_is_nested(entries: bytes) -> None:
    reader = AmqpReader(table(entries) + b"\0" * 1000)
    with pytest.raises(TooManyValues, match="more than 4096 values in its headers"):
        reader.table("headers")
    assert reader.pos < 6 * VALUES_MAX


def test_what_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="no type"):
        write_table({"a": object()})
    with pytest.raises(TypeError, match="not a number"):
        write_table({"a": Decimal("NaN")})
    with pytest.raises(Refused, match="short string of 256 bytes"):
        write_table({"a" * 256: 1})
