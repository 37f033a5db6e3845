"""The import: foreign files in, one config out, with a report of what became of each setting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headway import __version__
from headway.console import many
from headway.core.base import ConfigError, unknown
from headway.migration.draft import Draft, Outcome, Result
from headway.migration.formats import File, load, read_xml
from headway.migration.hiding import hide
from headway.migration.origins import ORIGINS, Origin, Score
from headway.server.config import parse_settings
from headway.store.toml import BadConfig


class Import(NamedTuple):
    """A finished import."""

    origin: Origin
    text: str
    """The config, in TOML."""
    outcomes: list[Outcome]
    """One for each setting, in the order of the files."""

    @property
    def lost(self) -> list[Outcome]:
        """Settings without counterpart."""
        return [one for one in self.outcomes if one.result is Result.LOST]

    @property
    def summary(self) -> str:
        counts = Counter(one.result for one in self.outcomes)
        parts = [f"{counts[result]:,} {result}" for result in Result]
        return f"{many(len(self.outcomes), 'setting')} of {self.origin.title}: {', '.join(parts)}"


def import_files(paths: Sequence[Path], kind: str = "") -> Import:
    """Reads files of one system. ``kind``: which; empty: told by what is in them. Raises ConfigError."""
    files = [load(path) for path in paths]
    for file in files:
        _refuse_unread(file)
    origins = [_named(kind)] * len(files) if kind else [recognised(file) for file in files]
    for file, origin in zip(files, origins, strict=True):
        if origin.title != origins[0].title:
            raise ConfigError(
                f"{files[0].path} is of {origins[0].title}, and {file.path} of {origin.title}: import them one by one"
            )
    draft = Draft([option for origin in dict.fromkeys(origins) for option in origin.options])
    for origin in dict.fromkeys(origins):
        roots = [origin.parse(file) for file, its in zip(files, origins, strict=True) if its is origin]
        draft.hide_users(roots)
        origin.read(roots, draft)
    text = _head(files, origins[0]) + draft.text()
    order = {name: number for number, name in enumerate(dict.fromkeys(node.where.file for node in draft.outcomes))}
    order |= {file.name: number - len(files) for number, file in enumerate(files)}
    outcomes = sorted(draft.outcomes, key=lambda one: (order[one.where.file], one.where.line))
    if not outcomes:
        raise ConfigError(f"{files[0].path}: there is no setting of {origins[0].title} in it")
    try:
        parse_settings(text)
    except BadConfig as error:
        raise ConfigError(f"what was made of {files[0].path} is not valid here: {hide(error.lines[0])}") from None
    return Import(origins[0], text, outcomes)


def recognised(file: File) -> Origin:
    """Returns the origin of a file, by the names in it. Raises ConfigError."""
    if file.is_xml:
        read_xml(file)  # what is not well-formed is said first, whatever it is of
    scores = sorted(((origin.score(file), origin) for origin in ORIGINS), key=lambda one: -one[0].points)
    best, origin = scores[0][0].points, scores[0][1]
    known = ", ".join(dict.fromkeys(one.name for one in ORIGINS))
    if not best and not any(line.strip() and line.strip()[:1] not in b"#" for line in file.raw.splitlines()):
        raise ConfigError(f"{file.path}: has no setting in it, only comments")
    if not best:
        whole = [one for score, one in scores if one.blocks and len(score.known) == score.names > 1]
        if whole and not file.is_json:
            return whole[0]
        raise ConfigError(f"{file.path}: {_doubt([score for score in scores if score[0].known], known)}")
    equal = [one.title for score, one in scores if score.points == best]
    if len(set(equal)) > 1:
        raise ConfigError(f"{file.path}: may be of {' or '.join(dict.fromkeys(equal))}; --from says which ({known})")
    return origin


def _doubt(scores: Sequence[tuple[Score, Origin]], known: str) -> str:
    """Says what is known of a file that is of no system for sure."""
    if not scores:
        return f"has no settings of a known system ({known}); --from says which it is of"
    most = max(len(score.known) for score, _ in scores)
    whole = [(score, one) for score, one in scores if len(score.known) == most]
    titles = " or ".join(dict.fromkeys(one.title for _, one in whole))
    score = whole[0][0]
    if most == score.names:
        return f"may be of {titles}, by names that are in files of many systems; --from says which ({known})"
    some = ", ".join(name[:40] for name in score.known[:3])
    known_of = f"of {score.names} names in it only {some} are of {titles}"
    return f"I do not know this file: {known_of}; --from says which it is of"


UNREAD = (
    (rb'^\s*\{(?=.*"modelVersion")(?=.*"(authenticationproviders|virtualhostnodes|virtualhosts)")',
     "the JSON of Qpid's broker in Java", "write its ports and users anew: docs/coming-from/QPID.md"),
    (rb"^(\s|%[^\n]*\n)*\[(\s|%[^\n]*\n)*(\{\s*'?[a-z]\w*'?\s*,|\]\s*\.)",
     "a configuration in Erlang's terms (rabbitmq.config, advanced.config)", "write it as rabbitmq.conf"),
    (rb'<(\w+:)?configuration\b[^>]*"urn:activemq"|<core\b[^>]*"urn:activemq:core"',
     "the broker.xml of ActiveMQ Artemis", "write its acceptors and users anew: docs/coming-from/ACTIVEMQ.md"),
)  # fmt: skip
"""Files of systems that are known, in forms that are not read: how to tell, what they are, what to do."""


def _refuse_unread(file: File) -> None:
    for form, what, instead in UNREAD:
        if re.search(form, file.raw, re.DOTALL):
            raise ConfigError(f"{file.path}: is {what}, which is not read; {instead}")


def _named(kind: str) -> Origin:
    for origin in ORIGINS:
        if kind in (origin.name, *origin.also):
            return origin
    raise unknown("kind of file", kind, list(dict.fromkeys(origin.name for origin in ORIGINS)))


def _head(files: Sequence[File], origin: Origin) -> str:
    names = ", ".join(file.name if file.name.isprintable() else "a file" for file in files)
    return (
        f"# From {names} ({origin.title}), by headway {__version__}. Each key names the line that it comes from.\n"
        "# Whatever is not here is as in the default (headway serve --print-config).\n\n"
    )
