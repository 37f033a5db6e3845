"""Selectors: the language in tables, its logic and its limits by hypothesis."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.message.keys import compile_key
from headway.core.message.record import Properties, Record, Run
from headway.core.selector.selector import MAX_DEPTH, Selector, compile_selector, priority_of
from headway.core.selector.syntax import MAX_SELECTOR_CHARS, BadSelector, RecordView

PAYLOAD = {
    "origin": "JFK", "delay": 45, "late": 12.5, "ok": True, "no": False, "nil": None, "text5": "5", "big": 2**63,
    "neg": -7,
    "a": {"b": [10, {"c": "deep"}], "x.y": 1}, "list": [1], "odd name": "o", "quo\"te": "q", "percent": "50%_x",
    "zero": 0,
    "lines": "one\ntwo", "hidden": "payload", "topic": "payload's", "Delay": 1, "and": 3, "huge": 10**400,
}  # fmt: skip
USER = (
    ("prio", "7"), ("flag", "TRUE"), ("off", "false"), ("word", "seven"), ("hidden", "property"), ("a.dotted", "d"),
    ("nine", "9"), ("ten", "10"), ("sci", " 1e3 "), ("long", "9" * 5000), ("empty", ""), ("x-y", "dash"),
)  # fmt: skip
RECORD = Record("flights/JFK/UA", json.dumps(PAYLOAD).encode(), Properties(user=USER))

T, F, U = True, False, None
CONDITIONS: list[tuple[str, bool | None]] = [
    # Comparison
    ("origin = 'JFK'", T), ("origin = 'jfk'", F), ("origin <> 'LGA'", T), ("origin != 'JFK'", F), ("origin > 'EWR'", T),
    ("delay = 45", T), ("delay = 45.0", T), ("45 = delay", T), ("delay > 45", F), ("delay >= 45", T),
    ("delay < 45.1", T),
    ("delay <= 44", F), ("late = 12.5", T), ("Delay = 1", T), ("DELAY = 45", U),
    ("delay = 0x2d", T), ("delay = 45L", T), ("delay = 4.5E1", T), ("delay = 45d", T), ("neg = -7", T),
    ("neg = - 7", T),
    ("neg = +-7", T), ("late > .5", T), ("late > 5.", T), ("ok = TRUE", T), ("ok <> TRUE", F), ("no = false", T),
    ("text5 = 5", F), ("text5 <> 5", F), ("NOT text5 = 5", T), ("text5 = '5'", T), ("ok = 1", F), ("list = 1", F),
    ("list = list", F), ("delay > 'a'", F), ("origin > ok", F), ("ok > no", F), ("big = 9223372036854775808", T),
    ("huge > 0", T), ("huge = huge", T), ("huge + 1 IS NULL", T), ("(delay > 1) = TRUE", T),
    ("(nil > 1) = TRUE", U), ("delay = delay", T), ("a = 1", F),
    # NULL
    ("nil IS NULL", T), ("nil IS NOT NULL", F), ("missing IS NULL", T), ("origin is not null", T), ("missing = 1", U),
    ("missing <> 1", U), ("missing = missing", U), ("missing", U), ("NOT missing", U), ("missing > 1 OR ok", T),
    ("missing > 1 AND ok", U), ("missing > 1 AND no", F), ("missing > 1 OR no", U), ("nil LIKE '%'", U),
    ("nil NOT LIKE '%'", U), ("nil IN ('a')", U), ("nil NOT IN ('a')", U), ("nil BETWEEN 1 AND 2", U),
    ("-nil IS NULL", T),
    ("delay BETWEEN nil AND 1", F), ("delay BETWEEN nil AND 99", U), ("delay + missing IS NULL", T),
    ("list IS NULL", F),
    # Logic
    ("ok", T), ("no", F), ("NOT ok", F), ("not not ok", T), ("ok AND no", F), ("ok OR no", T), ("no OR no OR ok", T),
    ("no AND no OR ok", T), ("ok OR ok AND no", T), ("(ok OR ok) AND no", F), ("NOT no AND no", F),
    ("NOT (no AND no)", T),
    ("NOT delay > 50", T), ("NOT delay > 40", F), ("TRUE", T), ("FALSE", F), ("origin", U), ("delay", U),
    ("tRuE aNd ok", T),
    # Arithmetic
    ("delay + 5 = 50", T), ("delay - 5 - 5 = 35", T), ("delay - (5 - 5) = 45", T), ("2 + 3 * 4 = 14", T),
    ("(2 + 3) * 4 = 20", T), ("7 / 2 = 3.5", T), ("8 / 4 / 2 = 1", T), ("8 / (4 / 2) = 4", T), ("delay / 0 IS NULL", T),
    ("delay / zero > 1", U), ("-delay = -45", T), ("- -delay = 45", T), ("2*-3 = -6", T), ("origin + 1 IS NULL", T),
    ("ok + 1 IS NULL", T), ("delay -5 = 40", T), ("1e308 * 10 > 1e308", T), ("big * big > big", T),
    ("text5 + 1 IS NULL", T),
    # BETWEEN, IN, LIKE
    ("delay BETWEEN 45 AND 46", T), ("delay BETWEEN 46 AND 45", F), ("delay NOT BETWEEN 1 AND 2", T),
    ("delay BETWEEN 40 AND 50 AND ok", T), ("origin BETWEEN 'A' AND 'Z'", T), ("origin IN ('EWR', 'JFK')", T),
    ("origin NOT IN ('EWR', 'JFK')", F), ("origin IN ('EWR')", F), ("delay IN (1, 45)", T), ("delay IN (45.0)", T),
    ("neg IN (-7, +8)", T), ("delay IN ('45')", F), ("text5 IN (5)", F), ("ok IN (1)", F), ("list IN (1)", F),
    ("origin LIKE 'J%'", T), ("origin LIKE '%K'", T), ("origin LIKE '_F_'", T), ("origin LIKE 'J_'", F),
    ("origin LIKE 'JFK'", T),
    ("origin LIKE 'jfk'", F), ("origin LIKE '%'", T), ("origin LIKE ''", F), ("origin NOT LIKE 'E%'", T),
    ("percent LIKE '50!%!_%' ESCAPE '!'", T), ("percent LIKE '50!_%' ESCAPE '!'", F), ("percent LIKE '50.%'", F),
    ("lines LIKE 'one%two'", T), ("lines LIKE 'one_two'", T), ("delay LIKE '45'", F), ("topic LIKE '%s'", T),
    ("origin LIKE 'JF%FK'", F), ("origin LIKE 'J%FK%K'", F), ("origin LIKE 'J%F%K'", T), ("origin LIKE '%F%F%'", F),
    # Names
    ("a.b.0 = 10", T), ("a.b.1.c = 'deep'", T), ("a.b.2 IS NULL", T), ("a.\"x.y\" = 1", T), ("a.x.y IS NULL", T),
    ("origin.x IS NULL", T), ("\"odd name\" = 'o'", T), ("\"quo\"\"te\" = 'q'", T), ("\"and\" = 3", T),
    ("\"origin\" = 'JFK'", T),
    ("android IS NULL", T), ("origin = 'it''s'", F), ("$x IS NULL", T), ("_y IS NULL", T), ("größe IS NULL", T),
    # User properties, untyped; they hide fields
    ("prio > 6", T), ("prio = '7'", T), ("prio = 7.0", T), ("prio + 1 = 8", T), ("word > 6", F),
    ("word + 1 IS NULL", T),
    ("flag", T), ("off", F), ("NOT off", T), ("word", U), ("flag = TRUE", T), ("flag = 'TRUE'", T), ("off = FALSE", T),
    ("hidden = 'property'", T), ("a.dotted = 'd'", T), ("nine < ten", T), ("nine = ten", F), ("nine < word", T),
    ("prio IN (7)", T), ("prio IN ('7')", T), ("prio BETWEEN 6 AND 8", T), ("sci = 1000", T), ("long > 1", F),
    ("empty = ''", T), ("empty > 0", F), ("\"x-y\" = 'dash'", T), ("word LIKE 's%n'", T), ("-prio = -7", T),
    # The record's own
    ("priority = 4", T), ("topic = 'payload''s'", T), ("key = '45'", T),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_conditions(text: str, wanted: bool | None) -> None:
    key = compile_key("/delay")
    selector = compile_selector(text)
    assert selector.matches(RECORD, key) is (wanted is True)
    # Told apart from false by its negation: what is unknown stays unknown.
    assert compile_selector(f"NOT ({text})").matches(RECORD, key) is (wanted is False)
    again = compile_selector(selector.text)
    assert again.text == selector.text
    assert again.matches(RECORD, key) is (wanted is True)


def test_the_records_own_names() -> None:
    bare = Record("flights/JFK/UA", b"not json", Properties(user=(("p", "1"),)))
    assert compile_selector("topic LIKE 'flights/JFK/%' AND p = 1 AND priority = 4 AND key IS NULL").matches(bare)
    assert compile_selector("key = 'flights/JFK/UA'").matches(bare, compile_key("topic"))
    assert compile_selector("priority = 9").matches(Record("t", b"{}", Properties(user=(("priority", "9"),))))


@pytest.mark.parametrize(
    ("user", "wanted"),
    [
        ((), 4), ((("priority", "0"),), 0), ((("priority", "9"),), 9), ((("priority", "10"),), 4),
    ((("priority", ""),), 4),
        ((("priority", "x"),), 4), ((("priority", "-1"),), 4), ((("priority", "٣"),), 4), ((("Priority", "3"),), 4),
        ((("a", "1"), ("priority", "3"), ("priority", "5")), 3),
    ],
)  # fmt: skip
def test_priorities(user: tuple[tuple[str, str], ...], wanted: int) -> None:
    assert priority_of(Record("t", b"", Properties(user=user))) == wanted


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[1]", b"5", b'"x"', b"\xff", b'{"x":', b'{"x":"\xff"}', b'{"x":' * 100_000, b"[" * 100_000, b"{}x"],
    ids=lambda payload: repr(payload[:9]),
)
def test_a_payload_that_is_no_object_has_no_fields(payload: bytes) -> None:
    assert compile_selector("x IS NULL AND y.z IS NULL").matches(Record("t", payload))
    assert not compile_selector("x = 1").matches(Record("t", payload))


def test_the_payload_is_read_once_and_only_if_asked_for() -> None:
    selector = compile_selector("p = 2 OR (x = 1 AND y = 2)")
    view = RecordView(Record("t", b'{"x":1,"y":2}', Properties(user=(("p", "2"),))), b'{"x":1,"y":2}', None)
    assert selector._evaluate(view) is True
    assert view.fields is None
    view = RecordView(Record("t", b"{}"), b'{"x":1,"y":2}', None)
    assert selector._evaluate(view) is True
    view.payload = b"gone"
    assert selector._evaluate(view) is True


def test_select_takes_the_wanted_of_a_run() -> None:
    payloads = [b'{"x":1}', b'{"x":2}', b"no", b'{"x":3}']
    data = b"".join(b"HEAD" + payload for payload in payloads)
    ends = [sum(len(payload) + 4 for payload in payloads[: index + 1]) for index in range(4)]
    bodies = [end - len(payload) for end, payload in zip(ends, payloads, strict=True)]
    run = Run("t", data, ends, bodies, properties=Properties(user=(("p", "1"),)))
    assert compile_selector("x >= 2 AND p = 1").select(run, {}) == [1, 3]
    assert compile_selector("x IS NULL").select(run, {}) == [2]
    assert compile_selector("key = '3'").select(run, {}, compile_key("/x")) == [3]
    assert compile_selector("p = 2").select(run, {}) == []


ERRORS = [  # text, position, what it says
    ("", 1, "a name or value"), ("  ", 3, "a name or value"), ("a =", 4, "a name or value"),
    ("a = = 5", 5, "a name or value"),
    ("a == 5", 4, "one ="), ("a = NULL", 5, "IS NULL"), ("a <> null", 6, "IS NULL"), ("a = 'x", 5, "closing '"),
    ('"a = 1', 1, 'closing "'), ("a & b", 3, "AND"), ("a | b", 3, "OR"), ("a = 1 ! b", 7, "NOT"),
    ("a ; b", 3, "no meaning"),
    ("5", 1, "not a condition"), ("'x'", 1, "not a condition"), ("a AND 'x'", 7, "not a condition"),
    ("a AND b + 1", 7, "not a condition"), ("NOT 5", 5, "not a condition"), ("a b", 3, "AND, OR"), ("a)", 2, "AND, OR"),
    ("(a", 3, ")"), ("a LIKE 5", 8, "single quotes"), ("a LIKE b", 8, "single quotes"),
    ("5 LIKE 'x'", 1, "LIKE is for texts"),
    ("a LIKE 'x' ESCAPE ''", 8, "one character"), ("a LIKE 'x' ESCAPE 'ab'", 8, "one character"),
    ("a LIKE 'x!y' ESCAPE '!'", 8, "must stand before"), ("a LIKE 'x!' ESCAPE '!'", 8, "must stand before"),
    ("a LIKE '" + "x" * 257 + "'", 8, "256 are allowed"), ("a IN ()", 7, "text or number"),
    ("a IN (b)", 7, "text or number"),
    ("a IN (1,)", 9, "text or number"), ("a IN (-'x')", 8, "a number"), ("a IN 5", 6, "("), ("a IS 5", 6, "NULL"),
    ("a NOT 5", 7, "LIKE"),
    ("a BETWEEN 1 OR 2", 13, "AND"), ("and = 3", 1, "a name or value"), ("'a' > 1", 1, "never true"),
    ("1 IN ('a')", 1, "never true"), ("1 BETWEEN 'a' AND 'b'", 1, "never true"), ("(a = 1) = 'x'", 2, "never true"),
    ("TRUE > a", 1, "no order"), ("(a = 1) + 2 > 1", 2, "reckoned"), ("-'x' = 1", 2, "reckoned"),
    ("1e999 = a", 1, "too large"),
    ("a = " + "9" * 5000, 5, "too large"), ("a = " + "9" * 400, 5, "too large"), ("-" * 100 + "1 = a", 38, "nested"),
    ("a = 1" + " " * MAX_SELECTOR_CHARS, MAX_SELECTOR_CHARS + 1, "are allowed"),
    ("a=45AND b", 3, "no meaning"), ("a..b = 1", 2, "no meaning"), ("a = 5x", 5, "no meaning"),
    ("a = 1 = 1", 7, "AND, OR"), ("a IS NULL IS NULL", 11, "AND, OR"), ("a BETWEEN 1", 12, "AND"),
    ("a = NOT b", 5, "a name or value"), ("a + NOT b = 1", 5, "a name or value"), ("a IN (1 2)", 9, ") or ,"),
    ("a = " + "9" * 8000 + "x", 5, "no meaning"), ("a = " + "'" * 8001, 5, "closing '"),
    ("a = " + '"' * 8001, 5, 'closing "'), (" " * 8000 + "&", 8001, "AND"), ("a." * 4000, 8000, "no meaning"),
    ("a 'x\ny\0'", 3, "AND, OR"), ("1 BETWEEN 2 AND 'b'", 1, "never true"),
    ("-" * 100 + "a = 1", 38, "nested"), ("NOT " * 100 + "a", None, "nested"), ("1" + "+a" * 100 + " = 1", 1, "nested"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "position", "says"), ERRORS, ids=[row[0][:30] for row in ERRORS])
def test_errors(text: str, position: int | None, says: str) -> None:
    with pytest.raises(BadSelector, match=re.escape(says)) as caught:
        compile_selector(text)
    if position is not None:
        assert caught.value.position == position
    assert f"character {caught.value.position}:" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


NORMAL = [
    ("a=1", "a = 1"), (" a\n=\t1 ", "a = 1"), ("((a)) = ((1))", "a = 1"),
    ("a=1 and(b=2 and c=3)", "a = 1 AND b = 2 AND c = 3"),
    ("(a or b) or c", "a OR b OR c"), ("(a or b) and c", "(a OR b) AND c"), ("(a and b) or c", "a AND b OR c"),
    ("a != 1.0", "a <> 1.0"),
    ("not(a)", "NOT a"), ("not(a and b)", "NOT (a AND b)"), ("(not a)=true", "(NOT a) = TRUE"),
    ("a-(b-c)>0", "a - (b - c) > 0"),
    ("(a-b)-c>0", "a - b - c > 0"), ("-(a+b)<1", "-(a + b) < 1"), ("a*(-5)=1", "a * -5 = 1"), ("0x10=a", "16 = a"),
    ('"a"="b c"', 'a = "b c"'), ("a in('x',+1,- 2)", "a IN ('x', 1, -2)"),
    ("a not like 'x' escape '!'", "a NOT LIKE 'x' ESCAPE '!'"),
    ("(a=1) is null", "(a = 1) IS NULL"), ("a between(1)and 2", "a BETWEEN 1 AND 2"),
    ("(a between 1 and 2)and b", "a BETWEEN 1 AND 2 AND b"),
    ("--5=a", "5 = a"), ('"Or"=1', '"Or" = 1'), ('a."or".0=1', "a.or.0 = 1"),
    ("a/b*c/(d*e)=1", "a / b * c / (d * e) = 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "normal"), NORMAL)
def test_selectors_are_equal_by_their_normal_text(text: str, normal: str) -> None:
    assert compile_selector(text).text == normal
    assert compile_selector(text) == compile_selector(normal)
    assert hash(compile_selector(text)) == hash(compile_selector(normal))
    assert compile_selector(text) != compile_selector("zzz")


def test_chains_may_be_long_and_nesting_as_deep_as_is_allowed() -> None:
    record = Record("t", b'{"a":1,"b":2}')
    assert compile_selector(" OR ".join(["a = 2"] * 800 + ["b = 2"])).matches(record)
    assert compile_selector("(" * 2000 + "a = 1" + ")" * 2000).matches(record)
    deepest = MAX_DEPTH - 2
    assert compile_selector("NOT " * (deepest // 2 * 2) + "a = 1").matches(record)
    assert compile_selector("1" + "+a" * (MAX_DEPTH - 2) + f" = {MAX_DEPTH - 1}").matches(record)


def test_numbers_cannot_be_grown_without_end() -> None:
    """Squaring a thousand digits again and again would hold up everybody; beyond 64 bits it is floating point."""
    text = "a"
    for _ in range(8):
        text = f"({text} * {text})"
    record = Record("t", b'{"a":' + b"9" * 300 + b"}")
    assert compile_selector(f"{text} IS NOT NULL OR TRUE").matches(record)
    assert compile_selector("a * a > 1e300").matches(record)


def test_like_tries_nothing_twice() -> None:
    """Backtracking over these would not end."""
    record = Record("t", json.dumps({"a": "a" * 20_000}).encode())
    assert not compile_selector("a LIKE '" + "%a" * 100 + "%b'").matches(record)
    assert not compile_selector("a LIKE '" + "%a_" * 80 + "%b%'").matches(record)
    assert compile_selector("a LIKE '" + "%_a" * 80 + "%'").matches(record)


def test_like_does_not_compare_every_part_at_every_place_of_a_long_text() -> None:
    """Given characters are searched for in time that grows with the text. Where "_" is between them, it is unknown."""
    record = Record("t", json.dumps({"a": "a" * 100_000}).encode())
    for pattern, wanted in (
        ("%" + "_" * 253 + "b%", False), ("%" + "_" * 253 + "a%", True), ("%" + "a" * 250 + "___%", True),
        ("%a" + "_" * 100 + "b%", None), ("%a_a%", None), ("%" + "_" * 254 + "%", True),
        ("a_a%_", True), ("%a_a", True),
    ):  # fmt: skip
        plain, negated = (compile_selector(f"a {word} '{pattern}'") for word in ("LIKE", "NOT LIKE"))
        assert (plain.matches(record), negated.matches(record)) == (wanted is True, wanted is False), pattern
    short = Record("t", json.dumps({"a": "a" * 60_000 + "ab"}).encode())
    assert compile_selector("a LIKE '%a_b%'").matches(short)


# Hypothesis: random conditions against plain Python; random text against the error class.
NAMES = st.sampled_from(["a", "b", "c", "t"])
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y", ""])
Tree = tuple[Any, ...]
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
LEAF = st.tuples(st.just("compare"), NAMES, SIGNS, st.integers(-3, 3)) | st.tuples(st.just("null"), NAMES)
TREES = st.recursive(
    LEAF,
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    max_leaves=10,
)


def written(tree: Tree) -> str:
    match tree:
        case ("compare", name, sign, value):
            return f"{name} {sign} {value}"
        case ("null", name):
            return f"{name} IS NULL"
        case ("not", of):
            return f"not ({written(of)})"
        case (word, left, right):
            return f"({written(left)}) {word} ({written(right)})"
    raise AssertionError(tree)


def plainly(tree: Tree, fields: dict[str, Any]) -> bool | None:
    match tree:
        case ("compare", name, sign, value):
            found = fields.get(name)
            if found is None:
                return None
            if isinstance(found, bool | str):
                return False
            return bool(eval(f"{found} {({'=': '==', '<>': '!='}).get(sign, sign)} {value}"))
        case ("null", name):
            return fields.get(name) is None
        case ("not", of):
            value = plainly(of, fields)
            return None if value is None else not value
        case (word, left, right):
            pair = [plainly(left, fields), plainly(right, fields)]
            decisive = word == "or"
            return decisive if decisive in pair else None if None in pair else not decisive
    raise AssertionError(tree)


@given(TREES, st.dictionaries(NAMES, VALUES))
def test_logic_is_that_of_plain_python(tree: Tree, fields: dict[str, Any]) -> None:
    record = Record("t", json.dumps(fields).encode())
    selector = compile_selector(written(tree))
    assert selector.matches(record) is (plainly(tree, fields) is True)
    assert compile_selector(selector.text) == selector
    assert compile_selector(selector.text).matches(record) is selector.matches(record)


@given(st.text(alphabet="ab%_", max_size=8), st.text(alphabet="ab\n", max_size=10))
def test_like_is_that_of_a_shell(pattern: str, text: str) -> None:
    shell = pattern.replace("%", "*").replace("_", "?")
    record = Record("t", json.dumps({"a": text}).encode())
    assert compile_selector(f"a LIKE '{pattern}'").matches(record) is fnmatch.fnmatchcase(text, shell)


SYMBOLS = "a b.c \"q\" 1 -2 2.5e3 'x' '' ( ) , = <> < + - * / ' \" \\ é \0 . $"
RESERVED = "AND OR NOT IN LIKE ESCAPE BETWEEN IS NULL TRUE"
WORDS = st.sampled_from(f"{SYMBOLS} {RESERVED}".split(" "))


def compiled(text: str) -> Selector | BadSelector:
    try:
        return compile_selector(text)
    except BadSelector as bad:
        return bad


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=20), st.binary(max_size=12))
def test_nothing_but_bad_selector_comes_out_and_no_record_is_an_error(text: str, payload: bytes) -> None:
    selector = compiled(text)
    if isinstance(selector, BadSelector):
        assert 1 <= selector.position <= len(text) + 1
        return
    assert compile_selector(selector.text) == selector
    for dressed in (payload, b'{"a":' + payload + b"}", b'{"a":1,"b":{"c":"x"},"q":true}'):
        assert selector.matches(Record("t", dressed, Properties(user=(("q", "1"),)))) in (True, False)
