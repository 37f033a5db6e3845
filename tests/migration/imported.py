"""Helpers: texts imported as files of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.migration import Import, import_files
from headway.migration.draft import Result
from headway.server.config import Settings, lint, parse_settings


def imported(folder: Path, *files: tuple[str, str], kind: str = "") -> Import:
    """Imports texts, each under its name."""
    paths = []
    for name, text in files:
        path = folder / name
        path.write_text(text)
        paths.append(path)
    return import_files(paths, kind)


def settings_of(found: Import) -> Settings:
    """The config that was made, which ``headway check --strict`` accepts but for folders that are not there."""
    settings = parse_settings(found.text)
    doubts = [str(one) for one in lint(settings) if "cannot write" not in str(one)]
    assert doubts == [], found.text
    return settings


def rules_of(settings: Settings) -> dict[str, list[str]]:
    """Rules by policy, as sentences; without policies that only tell who takes nothing."""
    return {
        f"{policy.name} ({', '.join(policy.topics)}; {policy.subscriptions})": [
            f"{rule.when}{f' for {rule.for_s:g} s' if rule.for_s else ''}"
            f"{f', {rule.times} times' if rule.times > 1 else ''} -> {rule.then.word}"
            f"{f' {rule.then.which}' if rule.then.which else ''}"
            for rule in policy.rules
        ]
        for policy in settings.policies if [str(rule.when) for rule in policy.rules] != ["blocked_time > 30 s"]
    }  # fmt: skip


def with_result(found: Import, *results: Result) -> Sequence[str]:
    """Names of the settings that had one of these results."""
    return [one.option for one in found.outcomes if one.result in results]
