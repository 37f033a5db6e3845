"""``headway import`` as a command: what it prints, what it writes, and its exit codes; and presets of ``serve``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.migration.files import EVERYTHING
from tests.server.canned import Ran

from headway.cli.imports import KINDS
from headway.migration import ORIGINS
from headway.server.config import PRESETS, lint, parse_settings, preset_text

WHOLE = "client-output-buffer-limit pubsub 32mb 8mb 60\nmaxclients 500\n"


@pytest.fixture
def redis(tmp_path: Path) -> Path:
    path = tmp_path / "redis.conf"
    path.write_text(WHOLE)
    return path


def test_the_config_goes_to_stdout_and_the_summary_to_stderr(redis: Path) -> None:
    redis.write_text(f"{WHOLE}\nmaxmemory 1gb\nrequirepass s3cret\n")
    ran = Ran("import", str(redis))
    assert ran.code == 0
    settings = parse_settings(ran.out)
    assert settings.listeners["mqtt"].connections_max == 500
    assert '# redis.conf:1 client-output-buffer-limit "pubsub 32mb 8mb 60"' in ran.out
    lines = ran.err.splitlines()
    assert lines[0] == "Without counterpart:"
    assert lines[1].split() == ["redis.conf:4", "maxmemory", "1gb", *lines[1].split()[3:]]
    assert lines[2].split()[:4] == ["redis.conf:5", "requirepass", "***", "users"], "its value is nobody's affair"
    assert lines[3] == "4 settings of Redis: 2 carried over, 0 so here anyway, 2 without counterpart"


def test_strict_is_for_pipelines(redis: Path) -> None:
    assert Ran("import", str(redis), "--strict").code == 0
    redis.write_text(f"{WHOLE}maxmemory 1gb\n")
    assert Ran("import", str(redis)).code == 0
    assert Ran("import", str(redis), "--strict").code == 1


def test_a_file_is_written_once_and_over_another_only_by_force(redis: Path, tmp_path: Path) -> None:
    out = tmp_path / "headway.toml"
    ran = Ran("import", str(redis), "-o", str(out))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines()[-1] == f"Written: {out}. Next: headway check {out}"
    assert Ran("check", str(out), "--strict").code == 0
    before = out.read_text()
    redis.write_text("maxclients 7\n")
    ran = Ran("import", str(redis), "-o", str(out))
    assert (ran.code, ran.err) == (2, f"headway: {out}: is there already; --force writes over it\n")
    assert out.read_text() == before
    assert Ran("import", str(redis), "-o", str(out), "--force").code == 0
    assert parse_settings(out.read_text()).listeners["mqtt"].connections_max == 7


def test_mistakes_are_one_line_and_exit_code_2(redis: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.xml"
    bad.write_text("<broker>")
    ran = Ran("import", str(bad))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "headway: bad.xml:1: is not well-formed XML: no element found\n"
    nowhere = tmp_path / "none" / "headway.toml"
    ran = Ran("import", str(redis), "-o", str(nowhere))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "cannot be written" in ran.err


def test_names_of_files_and_settings_reach_no_terminal_as_controls(tmp_path: Path) -> None:
    path = tmp_path / "r\x1b[31m.conf"
    path.write_text("maxclients 5\nmax\x1b[2Jmemory\x07 1gb\n")
    ran = Ran("import", str(path))
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert "\x07" not in ran.out + ran.err
    parse_settings(ran.out)


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_kind_can_be_named(name: str, tmp_path: Path) -> None:
    paths = []
    for file, text in EVERYTHING[name]:
        paths.append(str(tmp_path / file))
        (tmp_path / file).write_text(text)
    assert Ran("import", *paths, "--from", name).out == Ran("import", *paths).out


def test_the_help_names_every_kind() -> None:
    assert KINDS.split(", ") == [origin.name for origin in ORIGINS]


# -- presets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_printed_and_is_in_order(name: str) -> None:
    ran = Ran("serve", "--preset", name, "--print-config")
    assert (ran.code, ran.out) == (0, preset_text(name))
    settings = parse_settings(ran.out)
    doubts = [str(one) for one in lint(settings)]
    if name == "amps":
        assert settings.policies == ()
        assert len(doubts) == 1
        assert "the default policy is switched off" in doubts[0], "its pools judge alone"
    else:
        assert doubts == []
        assert all(rule.enforce for policy in settings.policies for rule in policy.rules)


def test_a_preset_goes_with_no_config_and_unknown_ones_have_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "h.toml"
    file.write_text("")
    assert "one or the other" in Ran("serve", "--preset", "nats", "--config", str(file)).err
    ran = Ran("serve", "--preset", "natz")
    assert (ran.code, ran.err) == (2, "headway: unknown preset 'natz' (did you mean nats?)\n")
