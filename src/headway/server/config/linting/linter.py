"""The linter: finds places of a valid config that cannot do what they seem to say, for ``headway check``."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.message import covers, spellings
from headway.core.permission import EXCHANGES, QUEUES, Operation, Permission, fill
from headway.core.policy import Policy
from headway.server.config.linting.findings import Finding, Lines
from headway.server.config.linting.reachability import contradiction, marks_nobody, too_late
from headway.server.config.linting.writable import folders, why_not_writable
from headway.server.config.settings import Settings
from headway.server.config.tls.files import doubtful_certificates
from headway.server.config.tls.users import known_users, users_are_elsewhere
from headway.server.config.wildcards import meant

_WITH_FILTERS = (Operation.CONNECT, Operation.PUBLISH, Operation.SUBSCRIBE, Operation.DECLARE)
NARROW = "list narrow policies first, and those for more topics after them"

UNMARKED = (
    "it counts consumers that a rule has marked as slow, and no rule of this policy marks one without that: put a "
    "notify rule with a limit such as lag_age or blocked_time first"
)


def lint(settings: Settings) -> list[Finding]:
    """Returns the findings in the order of the file."""
    lines = Lines(settings.text)
    found = [
        *_rules(settings, lines), *_shadowed(settings, lines), *_uncovered(settings, lines),
        *_filters(settings, lines), *_permissions(settings, lines), *_limits(settings, lines), *_paths(settings, lines),
        *_certificates(settings, lines), *_in_clear(settings, lines),
    ]  # fmt: skip
    return sorted(dict.fromkeys(found), key=lambda one: (one.line is None, one.line or 0))


# -- rules ------------------------------------------------------------------------------------------------------------


def _rules(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for kind, policies in (("policy", settings.policies), ("trial", settings.trials)):
        for number, policy in enumerate(policies, 1):
            if not policy.rules:
                text = "it has no rules, so nobody judges the consumers that it covers: give it rules, or remove it"
                yield Finding(f"{kind} {policy.name!r}", text, lines.policy(number, kind=kind))
            for index, key, text in _bad_rules(policy):
                where = f"{kind} {policy.name!r}, rule {index + 1}"
                yield Finding(where, text, lines.policy(number, index + 1, key, kind))


def _bad_rules(policy: Policy) -> Iterator[tuple[int, str, str]]:
    """Yields the index of a rule, the key, and the text of a finding."""
    unmarked = marks_nobody(policy)
    for index, rule in enumerate(policy.rules):
        never = contradiction(rule.when)
        if never:
            yield index, "when", f"when: {never}; correct the limits, or remove the rule"
            continue
        if rule.until is not None and (never := contradiction(rule.until)):
            yield index, "until", f"until: {never}, so the rule would never step back; correct the limits"
        if index in unmarked:
            yield index, "when", f"when: {UNMARKED}"
        earlier = too_late(policy, index)
        if earlier is not None:
            yield index, "", _late(policy, *earlier)


def _late(policy: Policy, earlier: int, transient: bool) -> str:
    rule = policy.rules[earlier]
    whose = "no transient subscription ever reaches it" if transient else "it can never be reached"
    advice = "put it first, give it a lower limit, or remove it"
    if transient:
        advice += '; if it is for durable ones that are away, say so: subscriptions = "durable", in a policy of its own'
    return f"{whose}: rule {earlier + 1} has ended the subscription before ({rule.when} -> {rule.then.word}); {advice}"


# -- policies ---------------------------------------------------------------------------------------------------------


def _shadowed(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for number, policy in enumerate(settings.policies, 1):
        before = settings.policies[: number - 1]
        covered = {filter: _covering(filter, policy, before) for filter in policy.topics}
        hidden = {filter: by for filter, by in covered.items() if by is not None}
        by = " and ".join(repr(name) for name in dict.fromkeys(name for names in hidden.values() for name in names))
        if len(hidden) == len(covered):
            text = f"it governs nobody who does not ask for it by name: {by} comes first and covers the same; {NARROW}"
            yield Finding(f"policy {policy.name!r}", text, lines.policy(number))
        elif hidden:
            text = f"{', '.join(hidden)}: covered by {by} already, which comes first; {NARROW}, or leave it out"
            yield Finding(f"policy {policy.name!r}, topics", text, lines.policy(number, 0, "topics"))


def _covering(filter: str, policy: Policy, before: tuple[Policy, ...]) -> list[str] | None:
    """Returns the names of earlier policies that take every subscription to this filter; None: some are left."""
    names: list[str] = []
    for durable in (False, True):
        for listener in (policy.listeners or ("",)) if policy.covers(durable) else ():
            name = next((one.name for one in before if one.covers(durable) and one.serves(listener)
                         and any(covers(wide, each) for each in spellings(filter) for wide in one.topics)), None)
            if name is None:
                return None
            names.append(name)
    return names


def _uncovered(settings: Settings, lines: Lines) -> Iterator[Finding]:
    """Finds subscriptions that have no policy because the file's own ones have replaced the default."""
    everywhere = sorted(settings.listener_names)
    kinds: dict[str, list[str]] = {}
    for kind, durable in (("transient", False), ("durable", True)):
        wide = [one for one in settings.policies if one.covers(durable) and "#" in one.topics]
        if without := [name for name in everywhere if not any(one.serves(name) for one in wide)]:
            kinds[kind] = without
    if kinds:
        which = "subscriptions" if len(kinds) == 2 else f"{next(iter(kinds))} subscriptions"
        where = sorted({name for names in kinds.values() for name in names})
        if where != everywhere:
            which += f" of clients of {' and '.join(where)}"
        covered = ", ".join(dict.fromkeys(topic for one in settings.policies for topic in one.topics)) or "none"
        text = (
            "the default policy is switched off, because the file has policies of its own, and none of them is for all "
            f"{which} (covered: {covered}): nobody calls the others slow until a pool is full; add a policy with "
            'topics = ["#"] at the end (headway serve --print-config has the default one)'
        )
        yield Finding("policy", text, lines.policy(1))


# -- permissions ------------------------------------------------------------------------------------------------------


def _permissions(settings: Settings, lines: Lines) -> Iterator[Finding]:
    known, groups = known_users(settings), settings.auth.groups
    for name, members in groups.items():
        for member in members:
            if member not in known:
                text = f'"{member}" is neither in [auth.users] nor in [auth.tokens]; add the user, or correct the name'
                yield Finding(f"auth.groups.{name}", text, lines.key("auth.groups", name))
    for number, rule in enumerate(settings.permissions, 1):
        for key, text in _permission_faults(settings, rule, known):
            yield Finding(f"permission[{number}]{key and '.' + key}", text, lines.key("permission", key, number))
    if settings.permissions and settings.server.admin is not None and not _somebody_administers(settings):
        text = 'nobody may use the admin API (top, why, metrics): add a [[permission]] with admin = ["read"]'
        yield Finding("permission", text, lines.key("permission", number=1))


def _limits(settings: Settings, lines: Lines) -> Iterator[Finding]:
    known, for_all = known_users(settings), 0
    for number, one in enumerate(settings.limits, 1):
        if one.user is not None and one.user not in known and not users_are_elsewhere(settings):
            text = f'"{one.user}" is neither in [auth.users] nor in [auth.tokens], so it limits nobody'
            yield Finding(f"{one.name}.user", text, lines.key("limit", "user", number))
        if one.group is not None and one.group not in settings.auth.groups and not settings.auth.vouched:
            text = f'there is no group "{one.group}" in [auth.groups], so it limits nobody'
            yield Finding(f"{one.name}.group", text, lines.key("limit", "group", number))
        if for_all:
            text = f"it limits nobody, because limit[{for_all}] comes first and is for every user: put that last"
            yield Finding(one.name, text, lines.key("limit", number=number))
        elif one.user is None and one.group is None:
            for_all = number
    if settings.limits and not known and not users_are_elsewhere(settings):
        text = "there are no users whose names are checked, so nobody has limits: add [auth.users]"
        yield Finding("limit", text, lines.key("limit", number=1))


def _permission_faults(settings: Settings, rule: Permission, known: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the key of a fault, and what is wrong there."""
    if rule.user is not None and rule.user not in known:
        yield "user", f'"{rule.user}" is neither in [auth.users] nor in [auth.tokens], so it applies to nobody'
    if rule.group is not None and rule.group not in settings.auth.groups and not settings.auth.vouched:
        yield "group", f'there is no group "{rule.group}" in [auth.groups], so it applies to nobody'
    if not any(rule.filters(operation) for operation in Operation):
        yield "", "it gives nothing: add publish, subscribe, declare, connect or admin"
    others = settings.auth.vouched if rule.group else rule.user is None and users_are_elsewhere(settings)
    whom = [rule.user] if rule.user else settings.auth.groups.get(rule.group, []) if rule.group else known
    for operation in _WITH_FILTERS:
        for filter in rule.filters(operation):
            if why := _never(operation, filter, whom, others=others):
                yield operation, f'"{filter}": {why}'


def _never(operation: Operation, filter: str, users: list[str], *, others: bool) -> str:
    """Returns why a filter can never apply; empty if it can. ``others``: whether there may be more users."""
    if text := meant(filter.replace("%u", "u").replace("%c", "c")):
        return text
    if filter.startswith("$share/"):
        return "it is for the topics: write the filter without $share/GROUP, which any subscription may have"
    if operation is Operation.PUBLISH and filter.startswith("$") and not filter.startswith((QUEUES, EXCHANGES)):
        return "topics that begin with $ are the broker's own, and nobody may publish to them"
    if "%u" in filter and not users and not others:
        return "there are no users that %u could be: add [auth.users]"
    for name in users:
        if fill(filter, "%u", name) is None:
            which = '".", "/", "+" or "#"' if filter.startswith(QUEUES) else '"/", "+" or "#"'
            return f'%u is never "{name}", because it has {which} in it or begins with $'
    return ""


def _somebody_administers(settings: Settings) -> bool:
    admin = settings.auth.admin
    return bool(admin.read or admin.change) or any(rule.admin for rule in settings.permissions)


# -- topics and paths -------------------------------------------------------------------------------------------------


def _filters(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for kind, policies in (("policy", settings.policies), ("trial", settings.trials)):
        for number, policy in enumerate(policies, 1):
            for filter in policy.topics:
                if text := meant(filter):
                    line = lines.policy(number, 0, "topics", kind)
                    yield Finding(f"{kind} {policy.name!r}, topics", f'"{filter}": {text}', line)
            for index, rule in enumerate(policy.rules):
                for filter in rule.then.topics:
                    if text := meant(filter):
                        where = f"{kind} {policy.name!r}, rule {index + 1}, then"
                        line = lines.policy(number, index + 1, "then", kind)
                        yield Finding(where, f'"{filter}": {text}', line)
    views = {view.topic for view in settings.views.values()}
    for number, topic in enumerate((one for one in settings.topics if one.filter not in views), 1):
        if text := meant(topic.filter):
            yield Finding(f"topic[{number}].filter", f'"{topic.filter}": {text}', lines.key("topic", "filter", number))
        if topic.conflate_s is not None and "key" not in topic.model_fields_set:
            text = (
                "there is no key, so subscribers get the latest record of each topic; say so with key = \"topic\", or "
                "name the key of the records, such as key = \"/id\""
            )
            yield Finding(f"topic[{number}].conflate", text, lines.key("topic", "conflate", number))
    for name, table in settings.tables.items():
        if table.topic is not None and (text := meant(table.topic)):
            yield Finding(f"tables.{name}.topic", f'"{table.topic}": {text}', lines.key(f"tables.{name}", "topic"))


def _paths(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for key, folder in folders(settings).items():
        why = why_not_writable(folder)
        if why:
            table, _, name = key.rpartition(".")
            text = f"{folder}: a broker of this user cannot write there: {why}; choose another, or let this user write"
            yield Finding(key, text, lines.key(table, name))


# -- TLS --------------------------------------------------------------------------------------------------------------


def _certificates(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for where, key, text in doubtful_certificates(settings):
        yield Finding(f"{where}.{key}", text, lines.key(where, key.rpartition(".")[2]))


def _in_clear(settings: Settings, lines: Lines) -> Iterator[Finding]:
    """Finds listeners beyond this machine to which passwords are sent in clear."""
    for name, listener in settings.listeners.items():
        url = listener.url
        if settings.auth.checks_names and not url.loopback and not url.secure:
            text = f"{url}: passwords go over the network in clear: use {url.scheme}s:// (see `headway certs`)"
            yield Finding(f"listeners.{name}.url", text, lines.key(f"listeners.{name}", "url"))


def uncovered_finding(rows: list[dict[str, object]], total: int, consumers: int) -> Finding:
    """Returns the finding about consumers of a running broker that no policy would cover."""
    some = ", ".join(f"{row.get('client')} ({row.get('filter')})" for row in rows[:10])
    more = f", and {total - 10} more" if total > 10 else ""
    whose = f"{total} of the {consumers} consumers there are now would have none"
    return Finding("policy", f"{whose}: {some}{more}; add a policy whose topics cover their filters")
