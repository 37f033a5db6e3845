"""Settings for people: a short table that is printed at the start, and remarks on doubtful settings."""

from __future__ import annotations

from headway.core.base import format_count, format_duration, format_share, format_size
from headway.core.permission import Identity, Operation, Permissions
from headway.core.policy import Policy, Rule
from headway.server.config import host_limits
from headway.server.config.reading import plugins_of
from headway.server.config.settings import Settings
from headway.server.config.tls.users import known_users

USERS_SHOWN_MAX = 100
"""Users of whom `headway check` tells what they may do."""


def remarks(settings: Settings) -> list[str]:
    """Remarks at the start about settings that are allowed but doubtful."""
    lines: list[str] = []
    granted = host_limits.open_files_max()
    asked_for = [one for one in settings.listeners.values() if "connections_max" in one.model_fields_set]
    wanted = sum(one.connections_max for one in asked_for)
    if granted is not None and wanted > granted:
        files = format_count(granted)
        lines.append(f"connections_max adds up to {format_count(wanted)}, and `ulimit -Hn` allows {files} open files")
    for name, listener in settings.listeners.items():
        anonymous = listener.allows_anonymous(settings.auth.checks_names)
        if anonymous and not listener.url.loopback:
            lines.append(f"listeners.{name}: {listener.url} lets anyone who can reach it in without a name")
    for pool in settings.pools.values():
        if not pool.disk_bytes:
            whose = pool.name if pool.topic else f"listener {pool.name}"
            what = f"the pool of {whose}" if pool.name else "the pool"
            lines.append(f"{what} has no disk: when memory is full, the client that is furthest behind is disconnected")
    if not settings.policies:
        lines.append("there are no policies: nobody is called slow until memory runs out")
    return lines


def describe(settings: Settings) -> str:
    """Returns a short table of the settings, for the start and for `headway check`."""
    rows: list[tuple[str, str]] = []
    for name, listener in settings.listeners.items():
        access = "anonymous allowed" if listener.allows_anonymous(settings.auth.checks_names) else "users only"
        limits = f"packets to {format_size(listener.packet_bytes_max)}"
        connections = f"{format_count(listener.connections_max)} connections"
        pages = ""
        if listener.url.kind.websocket:
            origins = "this host" if listener.origins is None else ", ".join(listener.origins) or "no host"
            pages = f", path {listener.paths[0]}, pages of {origins}"
        rows.append((f"listener {name}", f"{listener.url}  {access}, {connections}, {limits}{pages}"))
    rows.append(("admin", str(settings.server.admin or "none")))
    for name, pool in settings.pools.items():
        disk = f"{format_size(pool.disk_bytes)} of disk in {pool.disk_path}" if pool.disk_bytes else "no disk"
        memory = format_size(pool.memory_bytes)
        shares = "a part of [pool]" if pool.topic else _shares(settings, name)
        first = ", the biggest client goes first" if pool.biggest_client_first else ""
        rows.append((f"pool {name}".strip(), f"{memory} of memory, {disk}, {shares}{first}"))
    for name in filter(settings.shares_pool, settings.listeners):
        rows.append((f"pool {name}", f"shares [pool], {_shares(settings, name)}"))
    telemetry = settings.telemetry
    if telemetry.enabled:
        how = f"up to {format_size(telemetry.disk_bytes)}, written every {format_duration(telemetry.every_s)}"
        rows.append(("telemetry", f"{telemetry.folder}  {how}"))
    traces = settings.traces
    if traces.enabled:
        how = f"{format_share(traces.ratio)} of sampled traces, {format_count(traces.per_second)} records a second"
        rows.append(("traces", f"{traces.url.partition('?')[0]}  {how}"))
    journal = settings.journal
    if journal.enabled:
        synced = f"synced every {format_duration(journal.gather_s)}" if journal.gather_s else f"fsync {journal.fsync}"
        rows.append(("journal", f"{journal.folder}  {synced}"))
    history = settings.history
    if history.enabled:
        rows.append(("history", f"{history.folder}  {format_duration(history.keep_s)} or "
                     f"{format_size(history.bytes_max)} of verdicts and ends of connections"))
    auth = settings.auth
    if auth.asks:
        read = "all" if auth.admin.read is None else ", ".join(auth.admin.read) or "nobody else"
        rows.append(("users", f"{format_count(len(auth.users))}, and {format_count(len(auth.tokens))} tokens"))
        rows.append(("admin rights", f"change: {', '.join(auth.admin.change) or 'nobody'}; read: {read}"))
    for topic in settings.keyed:
        recorded = f", recorded for {topic.keep}" if topic.keep is not None else ""
        conflated = ""
        if topic.conflate_s is not None:
            how = f"every {format_duration(topic.conflate_s)}" if topic.conflate_s else "as fast as sockets take it"
            conflated = f", conflated {how}"
        rows.append((f"topic {topic.filter}", f"keyed by {topic.key.text}{recorded}{conflated}"))
    rows += [(f"topic {filter}", f"priority {number}") for filter, number in settings.priorities.items()]
    for name, view in settings.views.items():
        pace = f"every {format_duration(view.every_s)}" if view.every_s else "as fast as it goes"
        rows.append((f"view {name}", f"{view.topic} by {view.key}, {view.mode}, {pace}"))
    for policy in settings.policies:
        rules = "; ".join(_rule_line(rule) for rule in policy.rules) or "no rules"
        rows.append((f"policy {policy.name}", f"{_whose(policy)}: {rules}"))
    for trial in settings.trials:
        rules = "; ".join(_rule_line(rule) for rule in trial.rules) or "no rules"
        rows.append((f"trial {trial.name}", f"{_whose(trial)}: {rules}"))
    rows += [(f"plug-in {name}", whose) for name, whose in plugins_of((*settings.policies, *settings.trials))]
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"{left:<{width}}  {right}" for left, right in rows)


def _shares(settings: Settings, listener: str) -> str:
    shares = settings.shares[listener]
    whole = ", evicts whole clients" if shares.connection else ""
    return f"{format_share(shares.client)} of it per client, {format_share(shares.user)} per user{whole}"


def _whose(policy: Policy) -> str:
    through = f" through {', '.join(policy.listeners)}" if policy.listeners else ""
    return f"{', '.join(policy.topics)} ({policy.subscriptions}{through})"


def _rule_line(rule: Rule) -> str:
    held = f" for {format_duration(rule.for_s)}" if rule.for_s else ""
    times = f", {rule.times} times" if rule.times > 1 else ""
    dry = "" if rule.enforce else " (dry run)"
    which = f" {rule.then.which}" if rule.then.which else ""
    keyed = "if there are keys, " if rule.keyed else ""
    pauses = "" if rule.excuse_pauses else ", usual pauses are no excuse"
    return f"{keyed}{rule.when}{held}{times}{pauses} -> {rule.then.word}{which}{dry}"


# -- what each user may do --------------------------------------------------------------------------------------------


def describe_permissions(settings: Settings) -> str:
    """Returns a line for each user, and one for clients without a user name; empty if there are no permissions."""
    if not settings.permissions:
        return ""
    rules = Permissions(settings.permissions, settings.auth.groups)
    users = known_users(settings)
    rows = [(name, _deeds(rules, name)) for name in users[:USERS_SHOWN_MAX]]
    if len(users) > USERS_SHOWN_MAX:
        rows.append(("...", f"and {len(users) - USERS_SHOWN_MAX} more users"))
    rows.append(("no user name", _deeds(rules, "")))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"may  {name:<{width}}  {deeds}" for name, deeds in rows)


def _deeds(rules: Permissions, user: str) -> str:
    grants = rules.grants(Identity(user))
    if not grants.applies:
        return "not connect"
    deeds = []
    for operation in Operation:
        some = grants.sets.get(operation)
        filters = [*(some.filters if some is not None else ()), *grants.templates.get(operation, ())]
        if filters:
            said = "connect as" if operation is Operation.CONNECT else str(operation)
            deeds.append(f"{said} {', '.join(filters)}")
    return "; ".join(deeds)
