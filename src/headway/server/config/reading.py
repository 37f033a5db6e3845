"""Reading of a config: from TOML to :class:`Settings`, or to all errors in it, one line each.

Rules:
- All errors are found in one go. Each line names the key by its dotted path in the file.
- Relations between limits are checked once every table by itself is valid.
- Keys that a file leaves out are as in ``defaults.toml``. A file with its own listeners or policies has only those.
- Clients without a user name are refused beyond loopback, and also on loopback if there are users, unless the listener
  has ``allow_anonymous = true``.
- The admin API is beyond loopback only with TLS and with users, tokens or certificates.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headway.core.allowance import UserLimits
from headway.core.base import ConfigError, format_duration, format_share, format_size, unknown
from headway.core.broker import Broker
from headway.core.log import Pool, Retained, Shares
from headway.core.permission import Permission
from headway.core.policy import (
    ACTIONS,
    CONDITIONS,
    METERS,
    ActionKind,
    FlapControl,
    Policy,
    parse_policies,
    parse_trials,
    plugged_action,
    plugged_condition,
    plugged_meter,
)
from headway.core.query import ORDERS_MAX
from headway.core.routing import Limits
from headway.server.config import host_limits
from headway.server.config.auth import read_password_file
from headway.server.config.auth.tables import AuthTable, LimitTable, PermissionTable, bad_jwt
from headway.server.config.fields import POOL_BYTES_MIN, Url, same_address, shown, with_hint
from headway.server.config.settings import (
    DISK_BYTES,
    FileTables,
    HistorySettings,
    PoolSettings,
    PoolTable,
    Settings,
    TopicTable,
    bad_views,
    key_of,
    of_a_program,
    topics_of,
)
from headway.server.config.tls import TlsTable, contradictions
from headway.store.toml import BadConfig, lower_first, parse_toml, read_text, values_in

# -- assembly ----------------------------------------------------------------------------------------------------------
#
# Assembly of the broker from its settings.


def make_broker(settings: Settings) -> Broker:
    """Makes the broker that the settings describe."""
    limits = {
        name: Limits(
            subscriptions_per_session_max=table.subscriptions_max,
            session_expiry_max_s=table.session_expiry_max_s,
            in_flight_max=table.in_flight_max,
            shares=settings.shares[name] if settings.shares_pool(name) else None,
        )
        for name, table in settings.listeners.items()
    }
    made: dict[str, Pool] = {}
    for name, sizes in settings.pools.items():
        shares = Shares(1.0, 1.0) if sizes.topic else settings.shares[name]  # a topic's pool may be one queue's
        made[name] = Pool(name or "global", sizes.memory_bytes, sizes.disk_bytes, shares.client,
                          user_share=shares.user, connection=shares.connection, topic=sizes.topic,
                          biggest_client_first=sizes.biggest_client_first)  # fmt: skip
    flap, retained = settings.flap, settings.retained
    broker = Broker(
        {"": Limits(), **limits}, made, settings.policies,
        flap=FlapControl(flap.base_s, flap.max_s, flap.forgive_s),
        retained=Retained(retained.topics_max, retained.bytes_max),
        sessions_max=settings.server.sessions_max,
        sweep_s=settings.server.sweep_s, late_s=settings.server.late_after_s,
        traces=settings.traces.sampling() if settings.traces.enabled else None, priorities=settings.priorities,
    )  # fmt: skip
    for topic in settings.keyed:
        broker.declare_state(topic.terms)
    broker.set_trials(settings.trials)
    return broker


# -- errors ------------------------------------------------------------------------------------------------------------
#
# Config errors in plain words: the key as it stands in the file, and the values that it takes.


def in_plain_words(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """Words the errors that pydantic found in a file whose tables are ``root``, one line each."""
    return [_plain(details, root) for details in error.errors(include_url=False)]


def _plain(details: ErrorDetails, root: type[BaseModel]) -> str:
    """Words one error."""
    path = list(details["loc"])
    if path[-1:] == ["[key]"]:
        path.pop()
    where, kind = _dotted(path), details["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, root)
    if kind == "headway":
        return f"{where}: {details['ctx']['text']}"
    if kind == "missing":
        return f"{where}: is missing"
    expected = {
        "bool_type": "true or false",
        "model_type": f"a table, [{where}]",
        "dict_type": f"a table, [{where}]",
        "list_type": f"tables in double brackets, [[{where}]]",
    }.get(kind)
    if expected is None:
        return f"{where}: {lower_first(details['msg'])}"
    return f"{where}: expected {expected}, not {shown(details['input'])}"


def _unknown_key(path: list[int | str], root: type[BaseModel]) -> str:
    table, word = _model_at(root, path[:-1]), str(path[-1])[:60]
    known = [field.alias or name for name, field in table.model_fields.items()]
    known += ["policy"] if table is root else []
    what = "section" if len(path) == 1 else "key"
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return f"{_dotted(path)}: unknown {what} ({hint})"


def _model_at(root: type[BaseModel], path: list[int | str]) -> type[BaseModel]:
    """Returns the class of the table at this path of the file."""
    kind: Any = root
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = next(field.annotation for name, field in kind.model_fields.items() if (field.alias or name) == part)
        else:
            kind = get_args(kind)[-1]
        if get_origin(kind) in (Union, UnionType):
            kind = get_args(kind)[0]
    return kind  # type: ignore[no-any-return]


def _dotted(path: list[int | str]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            text += ("." if text else "") + (part if part.replace("-", "_").isidentifier() else f'"{part[:60]}"')
    return text


# -- plugins -----------------------------------------------------------------------------------------------------------
#
# Plug-ins: meters, conditions and actions of other distributions, found by entry points when a config names them.
#
# Only plug-ins that a config names are imported. They stay imported until the process ends.


METERS_GROUP, CONDITIONS_GROUP, ACTIONS_GROUP = "headway.meters", "headway.conditions", "headway.actions"

T = TypeVar("T")


def look_for_plugins() -> None:
    """Has names that are not built in looked up among the installed plug-ins from now on."""
    METERS.elsewhere = lambda: _installed(METERS_GROUP, plugged_meter)
    CONDITIONS.elsewhere = lambda: _installed(CONDITIONS_GROUP, plugged_condition)
    ACTIONS.elsewhere = lambda: _installed(ACTIONS_GROUP, plugged_action)


def plugins_of(policies: Iterable[Policy]) -> list[tuple[str, str]]:
    """Returns the plug-ins that the policies use: the name, and the kind and origin of each."""
    found: dict[str, str] = {}
    for policy in policies:
        found |= {METERS[name].condition or name: METERS[name].plugin for name in policy.plugged}
        actions = [rule.then.name for rule in policy.rules if rule.then.kind is ActionKind.PLUGIN]
        found |= {name: f"action of {ACTIONS[name].origin}" for name in actions}
    return list(found.items())


def _installed(group: str, plug_in: Callable[[str, Any, str], T]) -> Mapping[str, Callable[[], T]]:
    importlib.invalidate_caches()
    found: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return {name: _loader(name, points, plug_in) for name, points in sorted(found.items())}


def _loader(name: str, points: list[metadata.EntryPoint], plug_in: Callable[[str, Any, str], T]) -> Callable[[], T]:
    def load() -> T:
        origins = [_origin(point) for point in points]
        if len(points) > 1:
            raise ConfigError(f"{name} is plugged in more than once, by {' and '.join(origins)}")
        try:
            there = points[0].load()
            return plug_in(name, there() if isinstance(there, type) else there, origins[0])
        except ConfigError as error:
            raise ConfigError(f"{name} of {origins[0]}: {error}") from None
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} of {origins[0]} cannot be loaded ({why})") from error

    return load


def _origin(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


# -- reading -----------------------------------------------------------------------------------------------------------


TOPIC_POOLS_MAX = 64
"""Each read of a publisher looks whether one of the pools is short of room."""
STRANGERS_VALUES_MAX = 10_000
"""Keys and elements of a text that a stranger wrote: some checks of all of them hold up all threads."""


def load_settings(path: str | Path | None = None, *, embedded: bool = False) -> Settings:
    """Reads the settings of a file, or of the embedded default. Raises ConfigError."""
    if path is None:
        return parse_settings(default_text())
    path = Path(path)
    return parse_settings(read_text(path), path, embedded=embedded)


def parse_settings(
    text: str, source: Path | None = None, *, embedded: bool = False, reads_files: bool = True
) -> Settings:
    """Reads the settings of a TOML text. ``source``: the file, for messages and for a reload. ``embedded``: of a broker
    in a program (settings.py). ``reads_files``: also the password file that it names; not if a stranger wrote the
    text. Raises ConfigError."""
    where = f"{source}: " if source else ""
    too_many = BadConfig([f"{where}has more than {STRANGERS_VALUES_MAX:,} values: ask with fewer tables, or run "
                          "`headway check` beside the file"])  # fmt: skip
    if not reads_files and text.count("=") + text.count("[[") > STRANGERS_VALUES_MAX:
        raise too_many  # before it is parsed, which takes long
    tables = parse_toml(text, where)
    if not reads_files and values_in(tables) > STRANGERS_VALUES_MAX:
        raise too_many
    errors, settings = _read(tables, text, source, embedded=embedded, reads_files=reads_files)
    if settings is None or errors:
        raise BadConfig([where + line for line in errors])
    return settings


@cache
def default_text() -> str:
    """Returns the embedded default config, with its comments."""
    return resources.files("headway.server.config").joinpath("defaults.toml").read_text(encoding="utf-8")


@cache
def _default_tables() -> dict[str, Any]:
    return parse_toml(default_text())


def _read(
    tables: dict[str, Any], text: str, source: Path | None, *, embedded: bool, reads_files: bool
) -> tuple[list[str], Settings | None]:
    tables = of_a_program(tables) if embedded else dict(tables)
    for section in ("listeners", "policy"):
        tables.setdefault(section, _default_tables()[section])
    written = {name: tables.get(name, []) for name in ("policy", "topic")}
    if "trial" in tables:
        written["trial"] = tables["trial"]
    errors, policies = _policies(tables.pop("policy"), "policy", parse_policies)
    more, trials = _policies(tables.pop("trial", []), "trial", parse_trials)
    errors += more
    try:
        file = FileTables.model_validate(tables)
    except ValidationError as error:
        return in_plain_words(error, FileTables) + errors, None
    bad_passwords, auth = _with_password_file(file.auth) if reads_files else ([], file.auth)
    errors += bad_passwords
    of_pools = {"": file.pool}
    of_pools |= {name: file.pool.but_for(table.pool) for name, table in file.listeners.items()}
    apart = [name for name, table in file.listeners.items() if table.pool is not None and table.pool.apart]
    of_views = [{"filter": view.topic, "key": key_of(view).text} for view in file.views.values()]
    written["topic"] = [*written["topic"], *of_views]
    settings = Settings(
        server=file.server, listeners=file.listeners, auth=auth,
        permissions=tuple(map(_permission, file.permission)), limits=tuple(_user_limits(file.limit)),
        pools=_with_topics({name: _limits(name, of_pools[name]) for name in ("", *apart)}, file.topic),
        shares={name: Shares(one.client_share, one.user_share, one.connection) for name, one in of_pools.items()},
        flap=file.flap, retained=file.retained, telemetry=file.telemetry, traces=file.traces,
        journal=file.journal, history=_history(file),
        topics=topics_of(file.views.values(), file.topic), views=file.views, tables=file.tables, policies=policies,
        trials=trials, source=source, policies_text=msgspec.json.encode(written).decode(), text=text,
        embedded=embedded,
    )  # fmt: skip
    contradictions = [*_contradictions(settings), *_bad_topics(settings, file.topic), *bad_views(settings, file.topic)]
    return [*contradictions, *errors], settings


def _with_password_file(auth: AuthTable) -> tuple[list[str], AuthTable]:
    """Returns the table with the users of its password file, too; the errors of the file."""
    if auth.password_file is None:
        return [], auth
    try:
        more = read_password_file(auth.password_file)
    except BadConfig as error:
        return [f"auth.password_file: {line}" for line in error.lines], auth
    twice = [f"auth.users.{name}: is in {auth.password_file}, too" for name in auth.users if name in more]
    return twice, auth.model_copy(update={"users": auth.users | more})


def _limits(name: str, table: PoolTable) -> PoolSettings:
    disk = max(DISK_BYTES, table.memory_bytes) if table.disk_bytes is None else table.disk_bytes
    path = table.disk_path or host_limits.spill_folder()
    return PoolSettings(name, table.memory_bytes, disk, path, biggest_client_first=table.biggest_client_first)


def _with_topics(pools: dict[str, PoolSettings], topics: Iterable[TopicTable]) -> dict[str, PoolSettings]:
    """Adds the pools of topics, and takes them from the global one."""
    whole = left = pools[""]
    found = {}
    for filter, pool in ((topic.filter, topic.pool) for topic in topics):
        if pool is not None:
            memory, disk = pool
            disk = whole.disk_bytes * memory // max(1, whole.memory_bytes) if disk is None else disk
            left = replace(left, memory_bytes=left.memory_bytes - memory, disk_bytes=left.disk_bytes - disk)
            found[f"topic {filter}"] = replace(whole, name=f"topic {filter}", memory_bytes=memory, disk_bytes=disk,
                                               topic=filter)  # fmt: skip
    return {**pools, "": left, **found}


def _history(file: FileTables) -> HistorySettings:
    table, journal = file.history, file.journal
    enabled = table.enabled
    if enabled is None:
        enabled = journal.enabled or "history" in file.model_fields_set
    folder = table.folder or (journal.folder if journal.enabled else Path("history"))
    return HistorySettings(enabled, folder, table.keep_s, table.disk_bytes)


def _policies(
    tables: object, kind: str, parse: Callable[[object], tuple[Policy, ...]]
) -> tuple[list[str], tuple[Policy, ...]]:
    """Reads policies or trials, and returns the errors of those that are not valid."""
    if not isinstance(tables, list):
        what = "policies are" if kind == "policy" else "trials are"
        return [f"{kind}: {what} written as [[{kind}]] tables, in double brackets"], ()
    look_for_plugins()
    errors: list[str] = []
    good: list[object] = []
    for number, table in enumerate(tables, 1):
        try:
            parse([table])
            good.append(table)
        except ConfigError as error:
            named = isinstance(table, Mapping) and isinstance(table.get("name"), str) and table["name"].strip()
            where = "" if named else f"{kind}[{number}]: "
            errors += [where + with_hint(line, _filter_in(line, table)) for line in str(error).splitlines()]
    try:
        return errors, parse(good)
    except ConfigError as error:
        return [*errors, str(error)], ()


def _filter_in(error: str, table: object) -> object:
    """Returns the filter of a policy that this error is about; None: it is about something else."""
    number = re.match(r"(?:policy|trial) .+: topics\[(\d+)\]: filter ", error)
    return table["topics"][int(number[1]) - 1] if number and isinstance(table, Mapping) else None


def _contradictions(settings: Settings) -> Iterator[str]:
    """Finds limits that are valid one by one and contradict each other."""
    yield from _bad_listeners(settings)
    yield from _unknown_listeners(settings)
    yield from _bad_admin(settings)
    yield from _bad_rights(settings)
    yield from _bad_permissions(settings)
    yield from _bad_limits(settings)
    yield from _bad_pools(settings)
    flap = settings.flap
    if flap.base_s > flap.max_s:
        yield f"flap.base: {format_duration(flap.base_s)} is more than flap.max, {format_duration(flap.max_s)}"
    if flap.forgive_s < flap.max_s:
        yield (
            f"flap.forgive: {format_duration(flap.forgive_s)} is less than flap.max, {format_duration(flap.max_s)}: "
            "a client that is shut out that long would come back forgiven"
        )
    if settings.retained.bytes_max > host_limits.memory_bytes():
        yield (
            f"retained.bytes_max: {format_size(settings.retained.bytes_max)} is more than the memory there is, "
            f"{format_size(host_limits.memory_bytes())}"
        )
    telemetry = settings.telemetry
    if telemetry.sample_s > telemetry.idle_s:
        yield (
            f"telemetry.sample: {format_duration(telemetry.sample_s)} is more than telemetry.idle, "
            f"{format_duration(telemetry.idle_s)}: consumers that lag are sampled more often than others"
        )
    if settings.journal.enabled and not all(pool.disk_bytes for pool in settings.pools.values()):
        yield "pool.disk: 0, and the journal needs disk: give it a limit, or leave [journal] out"


def _bad_topics(settings: Settings, topics: Sequence[TopicTable]) -> Iterator[str]:
    seen: set[str] = set()
    for number, topic in enumerate(topics, 1):
        if topic.keep is not None and not settings.journal.enabled:
            yield f"topic[{number}].keep: records are kept in the journal, and there is none: add [journal]"
        if topic.expire_s is not None and not topic.tombstones:
            yield f"topic[{number}].expire: a key expires by a delete, and tombstones = false allows none"
        if len(set(topic.order_by)) > ORDERS_MAX // 2:
            yield f"topic[{number}].order_by: there are {ORDERS_MAX} kept orders in all, half of them for one topic"
        if topic.filter in seen:
            yield f"topic[{number}].filter: {shown(topic.filter)} has a key already; one topic has one key"
        seen.add(topic.filter)


def _bad_rights(settings: Settings) -> Iterator[str]:
    auth = settings.auth
    if auth.jwt is not None:
        yield from bad_jwt(auth.jwt)
    for name in auth.tokens:
        if name in auth.users:
            yield f"auth.tokens.{name}: is the name of a user, too: give the token another"
    tls = settings.server.tls
    if auth.vouched or (tls is not None and tls.names_users):
        return  # there may be users that are nowhere else
    for right in ("read", "change"):
        for name in getattr(auth.admin, right) or ():
            if name not in auth.users and name not in auth.tokens:
                yield f"auth.admin.{right}: {shown(name)} is neither in [auth.users] nor in [auth.tokens]"


def _permission(table: PermissionTable) -> Permission:
    return Permission(
        table.user, table.group, tuple(table.connect), tuple(table.publish), tuple(table.subscribe),
        tuple(table.declares), tuple(table.admin),
    )  # fmt: skip


def _user_limits(tables: Sequence[LimitTable]) -> Iterator[UserLimits]:
    for number, table in enumerate(tables, 1):
        yield UserLimits(name=f"limit[{number}]", **table.model_dump(exclude_none=True))


def _bad_limits(settings: Settings) -> Iterator[str]:
    for limits in settings.limits:
        if limits.user is not None and limits.group is not None:
            yield f"{limits.name}: it is for a user or for a group, not for both: write two"
        if msgspec.structs.replace(limits, user=None, group=None) == UserLimits(limits.name):
            kinds = ", ".join(name for name in UserLimits.__struct_fields__ if name not in ("name", "user", "group"))
            yield f"{limits.name}: it limits nothing: add one of {kinds}"


def _bad_permissions(settings: Settings) -> Iterator[str]:
    for number, rule in enumerate(settings.permissions, 1):
        if rule.user is not None and rule.group is not None:
            yield f"permission[{number}]: it is for a user or for a group, not for both: write two"


def _bad_admin(settings: Settings) -> Iterator[str]:
    url, tls, auth = settings.server.admin, settings.server.tls, settings.auth
    yield from _bad_tls("server", "admin", url, tls)
    if url is None or url.loopback:
        return
    if not url.secure:
        yield (
            f"server.admin: {url} can be reached from other machines, and logins would go there in clear: use https:// "
            '(with [server.tls]), or listen on loopback only (such as "http://127.0.0.1:9883"; from afar: '
            "ssh -L 9883:127.0.0.1:9883 HOST)"
        )
    if not auth.asks and not (tls is not None and tls.logs_in):
        yield (
            f"server.admin: {url} can be reached from other machines and nobody would have to log in: add [auth.users] "
            "or [auth.tokens] (`headway passwd NAME` makes the line), or let certificates say who it is: "
            'verify = "required" in [server.tls]'
        )


def _bad_tls(where: str, key: str, url: Url | None, tls: TlsTable | None) -> Iterator[str]:
    if url is not None and url.secure and tls is None:
        yield (
            f"{where}.{key}: {url} takes a [{where}.tls] with a certificate and its key "
            "(`headway certs` makes some for trying out)"
        )
    if url is not None and not url.secure and tls is not None:
        yield f"{where}.{key}: {url} is without TLS, and there is a [{where}.tls]: write {url.scheme}s://"
    for name, text in contradictions(tls) if tls is not None else ():
        yield f"{where}.tls.{name}: {text}"


def _bad_listeners(settings: Settings) -> Iterator[str]:
    if not settings.listeners:
        yield 'listeners: there is none, so nobody could connect: [listeners.mqtt] with url = "mqtt://127.0.0.1:1883"'
    taken: dict[int, list[tuple[str, Url]]] = {}
    if settings.server.admin is not None:
        taken[settings.server.admin.port] = [("server.admin", settings.server.admin)]
    for name, listener in settings.listeners.items():
        where, url = f"listeners.{name}", listener.url
        for other, theirs in taken.setdefault(url.port, []):
            if url.port and same_address(url.host, theirs.host):
                yield f"{where}.url: {url} is taken by {other}, {theirs}"
        taken[url.port].append((f"{where}.url", url))
        yield from _bad_tls(where, "url", url, listener.tls)
        known = settings.auth.checks_names or listener.logs_in
        if listener.allow_anonymous_given is None and not url.loopback and not known:
            yield (
                f"{where}: {url} can be reached from other machines and nobody would have to log in: add [auth.users] "
                "(`headway passwd NAME` makes the line), ask for certificates (verify = \"required\" in "
                f"[{where}.tls]), or write allow_anonymous = true if that is what you want"
            )
        by_certificate = listener.tls is not None and listener.tls.names_users
        if listener.allow_anonymous_given is False and not settings.auth.checks_names and not by_certificate:
            yield f"{where}.allow_anonymous: false, and there are no [auth.users]: nobody could connect"
        of_websocket = {"path": listener.path_given, "origins": listener.origins, "compression": listener.compression}
        for key, given in of_websocket.items():
            if given not in (None, False) and not url.kind.websocket:
                yield f"{where}.{key}: is for WebSockets, and {url} is none (ws://)"
        if listener.trusted_given is not None and not listener.proxy_protocol and not url.kind.websocket:
            yield (
                f"{where}.trusted_proxies: needs proxy_protocol = true; without it, it is for WebSockets "
                "(X-Forwarded-For)"
            )
        pool, share = settings.pools.get(name) or settings.pools[""], settings.shares[name].client
        if (
            listener.packet_bytes_given is not None
            and POOL_BYTES_MIN <= pool.memory_bytes < listener.packet_bytes_max / share
        ):
            yield (
                f"{where}.packet_max: {format_size(listener.packet_bytes_max)} is more than one client may take up of "
                f"its pool, {format_share(share)} of {format_size(pool.memory_bytes)}"
            )


def _unknown_listeners(settings: Settings) -> Iterator[str]:
    """Finds policies for listeners that there are not."""
    for kind, policies in (("policy", settings.policies), ("trial", settings.trials)):
        for policy in policies:
            for name in policy.listeners:
                if name not in settings.listener_names:
                    yield f"{kind} {policy.name!r}: listeners: {unknown('listener', name, settings.listener_names)}"


def _bad_pools(settings: Settings) -> Iterator[str]:
    of_topics = [pool for pool in settings.pools.values() if pool.topic]
    if len(of_topics) > TOPIC_POOLS_MAX:
        yield f"topic: {len(of_topics)} of them have a pool, and at most {TOPIC_POOLS_MAX} may"
    left, memory = settings.pools[""], sum(pool.memory_bytes for pool in of_topics)
    if memory and left.memory_bytes < POOL_BYTES_MIN:
        yield (
            f"pool.memory: pools of topics take {format_size(memory)} of {format_size(left.memory_bytes + memory)}; "
            f"at least {format_size(POOL_BYTES_MIN)} has to be left for all else"
        )
    if left.disk_bytes < 0:
        disk = sum(pool.disk_bytes for pool in of_topics)
        yield f"pool.disk: pools of topics take {format_size(disk)} of {format_size(left.disk_bytes + disk)}"
    for name, pool in settings.pools.items():
        where = f"listeners.{name}.pool" if name else "pool"
        if pool.memory_bytes < POOL_BYTES_MIN and (name or not of_topics):
            yield (
                f"{where}.memory: {format_size(pool.memory_bytes)} is too little: "
                f"at least {format_size(POOL_BYTES_MIN)}"
            )
    total = sum(pool.memory_bytes for pool in settings.pools.values())
    if total > host_limits.memory_bytes():
        what = "pool.memory:" if len(settings.pools) == 1 else "pool.memory: all pools together,"
        yield f"{what} {format_size(total)} is more than the memory there is, {format_size(host_limits.memory_bytes())}"
