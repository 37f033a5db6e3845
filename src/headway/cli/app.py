"""The commands. Each reads its arguments, has the work done elsewhere, and prints."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headway import __version__
from headway.cli.admin import AdminClient, NotFound
from headway.cli.certs import certs
from headway.cli.consumer import consumer
from headway.cli.doctor import doctor
from headway.cli.errors import MISTAKE, NOTHING_FOUND, plainly, say
from headway.cli.export import export
from headway.cli.imports import import_config
from headway.cli.journal import journal
from headway.cli.lab import lab
from headway.cli.options import AdminOption, CaOption
from headway.cli.pipeline import pipeline
from headway.cli.shell.completion import completion
from headway.cli.shell.man import man
from headway.cli.state import query
from headway.cli.top import SORTS, View, draw, take, watch
from headway.cli.trouble.command import trouble
from headway.cli.verdicts import verdicts
from headway.cli.why import near, tell
from headway.console import printable
from headway.core.base import ConfigError, unknown
from headway.server.config import (
    PASSWORD_BYTES_MAX,
    PRESETS,
    Settings,
    bad_certificates,
    default_text,
    describe,
    describe_permissions,
    hash_password,
    lint,
    load_settings,
    new_token,
    parse_settings,
    preset_text,
    recording_text,
    remarks,
    uncovered_finding,
)
from headway.store.toml_text import toml_key

app = typer.Typer(
    name="headway",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]

app.add_typer(journal, name="journal", short_help="Show, verify or compact the files of a journal.")
app.command(short_help="Make certificates for trying out TLS.")(certs)
app.command("import", short_help="Read the configuration of another system.")(import_config)
app.command(short_help="Take recorded records out: Parquet or JSON lines.")(export)
app.add_typer(consumer, name="consumer", short_help="Skip, conflate, kick one consumer, or be patient with it.")
app.command(short_help="The latest record per key: filtered, ordered, live.")(query)
app.command(short_help="Slow consumers made to order, for any broker.")(trouble)
app.add_typer(pipeline, name="pipeline", short_help="What telemetry says of slow consumers; views of topics.")
app.add_typer(lab, name="lab", short_help="What other policies would have done with recorded traffic.")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def headway(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Headway: a message broker whose slow consumers cost the others nothing.

    \b
    Run it:
      headway serve                     MQTT, AMQP and STOMP on their ports of 127.0.0.1, nothing to configure
      headway serve --print-config >headway.toml
      headway check headway.toml        find every mistake, before it is needed
      headway doctor headway.toml       is everything here that it needs?
      headway import activemq.xml       start from another broker's configuration
      headway serve --config headway.toml
    \b
    Look at it while it runs:
      headway top                       consumers by lag
      headway why CLIENT                what was decided about a client, and why
      headway verdicts --since 8h       what happened last night
      headway consumer skip CLIENT      act on one consumer; http://127.0.0.1:9883/ is a console to do it in
      headway query 'flights/#'         the latest record per key
      headway export TOPIC -o x.parquet what is recorded of a topic; headway journal looks into the files
    \b
    Try it, or any other broker:
      headway trouble mqtt://127.0.0.1:1883    slow consumers made to order, beside healthy ones

    `headway COMMAND --help` has examples of each. Exit codes: 0 all is well, 1 nothing found, 2 something to put right.
    """


@app.command(short_help="Run the broker.")
@plainly
def serve(
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="The config, in TOML.")] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file", metavar="FILE",
            help="Written when all ports listen: the addresses and the pid, as JSON. It goes with the broker.",
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the config, by default the embedded one, and do not serve.")
    ] = False,
    preset: Annotated[
        str, typer.Option("--preset", metavar="SYSTEM", help=f"Treat slow consumers as it does: {', '.join(PRESETS)}.",
                          show_default=False)
    ] = "",
    record: Annotated[
        list[str] | None,
        typer.Option("--record", metavar="FILTER", help="Keep the records of these topics for a day, for replay and "
                     "for Spark; may be given again.", show_default=False)
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The journal's folder, with --record.")
    ] = Path("headway-data"),
    repair: Annotated[
        bool, typer.Option("--repair", help="Start from what can be read of a damaged journal; log what is lost.")
    ] = False,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C; SIGHUP reads the config again.

    Without a config: MQTT on 127.0.0.1:1883, AMQP on 5672, STOMP on 61613, the admin API on 9883, and a policy that
    loses nothing and says who does not read.

    \b
    Examples:
      headway serve
      headway serve --print-config >headway.toml        start from the default
      headway serve --preset nats                       slow consumers as NATS has them; also with --print-config
      headway serve --record 'flights/#'                and keep its records in ./headway-data; also with --print-config
      headway serve --config headway.toml
      headway serve -c test.toml --ready-file ready.json with port 0 in its URLs: takes free ports, and says which
    """
    settings = _served(config, preset, record or [], data)
    if print_config:
        typer.echo(settings.text, nl=not settings.text.endswith("\n"))
        return
    if ready_file is not None and (ready_file.is_dir() or not os.access(ready_file.parent, os.W_OK)):
        raise ConfigError(f"--ready-file {ready_file}: cannot be written there")
    for line in remarks(settings):
        say(line)
    from headway.server.main import run

    if ready_file is None:
        raise typer.Exit(run(settings, repair=repair))
    ready_file.unlink(missing_ok=True)  # of a broker that was killed
    try:
        raise typer.Exit(run(settings, ready_file, repair=repair))
    finally:
        ready_file.unlink(missing_ok=True)


def _served(config: Path | None, preset: str, record: list[str], data: Path) -> Settings:
    """Returns the settings that ``serve`` was asked for. Raises ConfigError."""
    if config is None:
        text = preset_text(preset) if preset else default_text()
        return parse_settings(recording_text(text, record, data) if record else text)
    if preset:
        raise ConfigError("--preset and --config: one or the other (--preset with --print-config: to start from)")
    if record:
        raise ConfigError("--record and --config: one or the other (in a config: [journal], and a [[topic]] with keep)")
    return load_settings(config)


@app.command(short_help="Find every mistake in a config.")
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
    typer.echo(clean_lines(describe(settings)))
    if settings.permissions:
        typer.echo(clean_lines(describe_permissions(settings)))
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


@app.command(short_help="Consumers by lag, live.")
@plainly
def top(
    admin: AdminOption = None,
    ca: CaOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    as_json: JsonOption = False,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, max=3600.0, help="Seconds between looks.")
    ] = 1.0,
    sort: Annotated[str, typer.Option("--sort", metavar="COLUMN", help="Such as lag, age, holds, consumer.")] = "lag",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The other way round.")] = False,
    filter: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only with this in name, topic, state.")] = "",
) -> None:
    """Consumers by lag: what each holds, its state, and the last verdict about it. Those that are away stand last.

    Keys: q quits, / filters as you type, < and > sort, r reverses, enter shows details, p pauses, ? has them all.

    \b
    LAG     records that wait for it         HOLDS      bytes kept on its account; all together, what is kept
    AGE     of the oldest of them            DRAIN      what it takes, bytes per second
    STATE   ok, behind, slow, conflating, discarding, offline (it reads from disk), away (not connected)
    In a wide terminal:
    BLOCKED    its socket takes no bytes     NO CREDIT  records wait, but it has not acknowledged enough
    SKIPPED    records it was not given      STALLS     for how long it has held up publishers
    Queues with something in them follow: how much waits, and how much is with consumers and may come back.

    \b
    Examples:
      headway top
      headway top --once --sort age --filter display     or into a pipe
      headway top --json | jq '.consumers[] | select(.slow) | .client'
    """
    broker = AdminClient(admin, ca=ca)
    if as_json:
        typer.echo(take(broker).json())
        return
    if sort not in SORTS:
        raise ConfigError(f"--sort: {unknown('column', sort, list(SORTS))}")
    console, view = Console(), View(sort, reverse, filter)
    if once or not console.is_terminal:
        console.print(draw(take(broker), None, console, view))
        return
    try:
        watch(broker, console, interval, view)
    except KeyboardInterrupt:
        return


@app.command(short_help="What was decided about a client, and why.")
@plainly
def why(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The client's name (MQTT client id).", show_default=False)
    ],
    admin: AdminOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="At most N verdicts.")] = 5,
) -> None:
    """Explains the decisions about a client, also long after it was disconnected.

    \b
    Examples:
      headway why display-7
      headway why display-7 --json | jq '.verdicts[0].readings'
    """
    broker = AdminClient(admin, ca=ca)
    try:
        answer = broker.why(name)
    except NotFound as error:
        names = near(broker, name)
        say(str(error) + (f" (did you mean {', '.join(names)}?)" if names else ""))
        raise typer.Exit(NOTHING_FOUND) from None
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        tell(Console(), answer, last)


app.command(short_help="Is everything here that the broker needs?")(doctor)
app.command(short_help="Completion for bash, zsh or fish.")(completion)
app.command(short_help="The man page.")(man)
app.command(short_help="What was decided lately: last night's verdicts.")(verdicts)


@app.command(short_help="Make a user's line for [auth.users].")
@plainly
def passwd(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)],
    token: Annotated[bool, typer.Option("--token", help="A token of the admin API, for [auth.tokens].")] = False,
    scram: Annotated[bool, typer.Option("--scram", help="A hash for logins by SCRAM-SHA-256, too.")] = False,
) -> None:
    """Make a user's line for [auth.users]. Asks for the password, or reads one line when it is not typed.

    With --scram, the hash is one by which the user can also log in with SCRAM-SHA-256, which sends no password.
    With --token, a line for [auth.tokens]; the token itself is printed on stderr, once.

    \b
    Examples:
      headway passwd alice
      pass show broker/alice | headway passwd alice >>users.toml
      headway passwd --token prometheus
    """
    if not name.strip() or not name.isprintable():
        raise ConfigError("a user's name consists of printable characters")
    if token:
        secret, digest = new_token()
        typer.echo(f"{toml_key(name)} = \"{digest}\"")
        say(f"the token, which is kept nowhere: {secret}")
        return
    if sys.stdin.isatty():
        password = str(typer.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"the password is longer than {PASSWORD_BYTES_MAX} bytes")
    typer.echo(f'{toml_key(name)} = "{hash_password(password, scram_able=scram)}"')


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@plainly
def demo() -> None:
    """The demo is in a checkout of Headway: `make demo` there."""
    raise ConfigError("the demo is not installed with headway: run make demo in a checkout")


def clean_lines(text: str) -> str:
    """Makes a text printable, line by line."""
    return "\n".join(printable(line) for line in text.splitlines())
