"""What the mutants change, on a source of a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.change import changes, chosen_of


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a is not b", ["return a is b"]),
        ("return a not  in b", ["return a in b"]),
        ("return a < b < c", []),
        ("if a: return 1", ["if (not (a)): return 1"]),
        ("if a is None: return 1", ["if a is not None: return 1"]),
        ("return a and b", ["return a or b"]),
        ("return 1 if a else 2", ["return 1 if (not (a)) else 2"]),
        ("while True: pass", []),
        ("a.b = 1", ["pass"]),
        ("a[1] += 2", ["pass"]),
        ("a(b)", ["pass"]),
        ("del a[b]", ["pass"]),
        ("a = 1", []),
        ("assert a == b", []),
        ("a('é') if b else 2", ["a('é') if (not (b)) else 2"]),
    ],
)
def test_each_change_is_made_where_it_says(tmp_path: Path, body: str, made: list[str]) -> None:
    head = "def f(a, b, c):\n    "
    file = tmp_path / "formats.py"
    file.write_text(head + body + "\n")
    assert [change.applied(file.read_text()) for change in changes(file)] == [f"{head}{line}\n" for line in made]


def test_only_functions_are_changed(tmp_path: Path) -> None:
    file = tmp_path / "formats.py"
    file.write_text("a = 1 < 2\nif a:\n    print(a)\n\nclass C:\n    b = 1 == 2\n")
    assert changes(file) == []


def test_what_a_seed_chooses_does_not_depend_on_the_rest_of_the_source(tmp_path: Path) -> None:
    file = tmp_path / "formats.py"
    lines = [f"    if a == {number}: b(c, {number})" for number in range(50)]
    file.write_text("\n".join(["def f(a, b, c):", *lines]))
    chosen = chosen_of(changes(file), 20, 1)
    assert chosen != chosen_of(changes(file), 20, 2)
    file.write_text("\n".join(["X = 1", "def f(a, b, c):", "    b(a)", *lines]))
    again = chosen_of(changes(file), 21, 1)
    assert {(one.within, one.old) for one in chosen} <= {(one.within, one.old) for one in again}
