"""`headway check`: every mistake in a config, and whom it would hit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.admin import AdminClient
from headway.cli.options import MISTAKE, CaOption, plainly
from headway.console import printable
from headway.core.base import ConfigError
from headway.server.config import (
    bad_certificates,
    describe,
    describe_permissions,
    lint,
    load_settings,
    remarks,
    uncovered_finding,
)


@plainly
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The config, in TOML.", show_default=False)],
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="URL", help="A broker's admin API: lists the consumers it would hit now."),
    ] = None,
    ca: CaOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are mistakes: exit code 2.")] = False,
) -> None:
    """Find every mistake in a config; with --against, also whom it would hit.

    It warns of rules and policies that can never apply, of other systems' wildcards, of subscriptions without a policy,
    of folders that this user cannot write to, and of certificates that expire. It opens the certificates, the password
    file and the keys of tokens. Nothing is changed, on disk or in the broker.

    \b
    Examples:
      headway check headway.toml
      headway check headway.toml --strict            in a pipeline: exit code 2 if there is a warning
      headway check headway.toml --against http://127.0.0.1:9883
    """
    from headway.server.logins import bad_keys

    settings = load_settings(file)
    if unusable := [*bad_certificates(settings), *bad_keys(settings.auth)]:
        raise ConfigError("\n".join(f"{file}: {line}" for line in unusable))
    typer.echo(_clean_lines(describe(settings)))
    if settings.permissions:
        typer.echo(_clean_lines(describe_permissions(settings)))
    for line in remarks(settings):
        typer.echo(f"note: {printable(line)}")
    findings = lint(settings)
    _warn(file, findings)
    answer: dict[str, Any] = {}
    if against is not None:
        answer = AdminClient(against, ca=ca).preview(settings.text)
        if answer.get("uncovered"):
            findings.append(uncovered_finding(answer["uncovered"], answer["uncovered_total"], answer["consumers"]))
            _warn(file, findings[-1:])
    if findings:
        count = "1 warning" if len(findings) == 1 else f"{len(findings)} warnings"
        typer.echo(f"{file} is valid, with {count}.")
    else:
        typer.echo(f"{file} is in order.")
    if against is not None:
        _preview(answer)
    if findings and strict:
        raise typer.Exit(MISTAKE)


def _warn(file: Path, findings: Sequence[object]) -> None:
    for finding in findings:
        typer.echo(f"warning: {printable(f'{file}: {finding}')}")


def _preview(answer: dict[str, object]) -> None:
    hits = answer.get("hits")
    consumers = answer.get("consumers", 0)
    if not isinstance(hits, list) or not hits:
        typer.echo(f"It would hit none of the {consumers} consumers there are now.")
        return
    clients, more = answer.get("clients"), int(str(answer.get("total", len(hits)))) - len(hits)
    typer.echo(f"It would hit {clients} clients, of the {consumers} consumers there are now:")
    for hit in hits:
        rule = f"policy {hit.get('policy')!r}, rule {hit.get('rule')}"
        typer.echo(printable(f"  {hit.get('client')}  {hit.get('filter')}  {rule}: {hit.get('text')}"))
    if more:
        typer.echo(f"  ... and {more} more")


def _clean_lines(text: str) -> str:
    """Makes a text printable, line by line."""
    return "\n".join(printable(line) for line in text.splitlines())
