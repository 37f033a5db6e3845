"""Permissions in the config: how they are read, what `headway check` tells, and what it warns of."""

from __future__ import annotations

import pytest
from tests.passwords import cheap_hash

from headway.core.base.errors import ConfigError
from headway.server.config.description import describe_permissions
from headway.server.config.linting.linter import lint
from headway.server.config.reading import parse_settings

HASH = cheap_hash("x")
AUTH = f'[auth.users]\nalice = "{HASH}"\nbob = "{HASH}"\n"c.d" = "{HASH}"\n[auth.groups]\ndesks = ["alice", "bob"]\n'
ADMIN = '[[permission]]\nuser = "bob"\nadmin = ["read"]\n'


def warnings(table: str) -> list[str]:
    found = lint(parse_settings(AUTH + ADMIN + "[[permission]]\n" + table))
    return [f"{one.line}: {one.key}: {one.text}" for one in found if one.key.startswith(("permission", "auth"))]


def test_what_each_may_do() -> None:
    text = describe_permissions(parse_settings(
        AUTH + ADMIN
        + '[[permission]]\ngroup = "desks"\npublish = ["orders/%u/#"]\nsubscribe = ["at/%c", "prices/#"]\n'
        + '[[permission]]\nconnect = ["%u"]\ndeclare = ["$queue/%u/#"]\n'
    ))  # fmt: skip
    assert text.splitlines() == [
        "may  alice         connect as alice; publish orders/alice/#; subscribe prices/#, at/%c; "
        "declare $queue/alice/#",
        "may  bob           connect as bob; publish orders/bob/#; subscribe prices/#, at/%c; declare $queue/bob/#; "
        "admin read",
        "may  c.d           connect as c.d",
        "may  no user name  not connect",
    ]
    assert describe_permissions(parse_settings(AUTH)) == ""


@pytest.mark.parametrize(
    ("table", "warning"),
    [
        ('user = "dora"\npublish = ["a"]', '11: permission[2].user: "dora" is neither in [auth.users] nor in'),
        ('group = "dsks"\npublish = ["a"]', '11: permission[2].group: there is no group "dsks"'),
        ('user = "alice"', "10: permission[2]: it gives nothing"),
        ('publish = ["$SYS/#"]', "11: permission[2].publish: "),
        ('subscribe = ["$share/g/a"]', '"$share/g/a": it is for the topics'),
        ('user = "c.d"\ndeclare = ["$queue/%u/#"]', '12: permission[2].declare: "$queue/%u/#": %u is never "c.d"'),
        ('subscribe = ["a.*.b"]', 'permission[2].subscribe: "a.*.b": * is a wildcard elsewhere'),
    ],
)
def test_what_can_never_apply(table: str, warning: str) -> None:
    found = warnings(table)
    assert len(found) == 1, found
    assert warning in found[0]


@pytest.mark.parametrize(
    "table",
    ['publish = ["orders/%u/#", "$queue/a", "$exchange/x/#"]\nsubscribe = ["$SYS/#"]',
     'group = "desks"\nconnect = ["%u"]',
     'user = "alice"\ndeclare = ["$queue/%u/#", "$cursor/%c"]\nadmin = ["change"]'],
)  # fmt: skip
def test_what_is_in_order(table: str) -> None:
    assert not warnings(table)


def test_groups_of_unknown_users_and_an_admin_api_for_nobody() -> None:
    text = AUTH.replace('"bob"]', '"dora"]') + '[[permission]]\npublish = ["a"]\n'
    found = [f"{one.line}: {one.key}: {one.text}" for one in lint(parse_settings(text))]
    assert any('6: auth.groups.desks: "dora" is neither' in one for one in found)
    assert any("permission: nobody may use the admin API" in one for one in found)


CERTIFICATES = """
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "server.pem"
ca = "ca.pem"
verify = "{verify}"
user = "{user}"
[auth.groups]
desks = ["eve"]
[[permission]]
user = "dora"
publish = ["a"]
admin = ["read"]
[[permission]]
group = "desks"
publish = ["b"]
[[permission]]
subscribe = ["of/%u"]
"""


@pytest.mark.parametrize("verify", ["required", "optional"])
def test_users_of_certificates_stand_nowhere_else(verify: str) -> None:
    settings = parse_settings(CERTIFICATES.format(verify=verify, user="common_name"))
    assert not [one.text for one in lint(settings) if one.key.startswith(("permission", "auth"))]
    assert describe_permissions(settings).splitlines() == [
        "may  dora          publish a; subscribe of/dora; admin read",
        "may  eve           publish b; subscribe of/eve",
        "may  no user name  not connect",
    ]


def test_certificates_that_name_no_users_bring_none() -> None:
    found = [one.text for one in lint(parse_settings(CERTIFICATES.format(verify="required", user="none")))]
    assert any('"dora" is neither in [auth.users]' in text for text in found)
    assert any('"eve" is neither in [auth.users]' in text for text in found)
    assert any("there are no users that %u could be" in text for text in found)


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ('user = "a"\ngroup = "b"', "permission[1]: it is for a user or for a group, not for both"),
        ('publish = ["a/#/b"]', "permission[1].publish"),
        ('publish = "a"', "permission[1].publish"),
        ('admin = ["all"]', "none of read, change"),
        ('pulish = ["a"]', "unknown key (did you mean publish?)"),
    ],
)
def test_mistakes(table: str, error: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_settings("[[permission]]\n" + table)
    assert error in str(found.value)


def limit_warnings(tables: str, auth: str = AUTH) -> list[str]:
    found = lint(parse_settings(auth + tables))
    return [f"{one.line}: {one.key}: {one.text}" for one in found if one.key.startswith("limit")]


@pytest.mark.parametrize(
    ("tables", "warning"),
    [
        ('[[limit]]\nuser = "dora"\nconnections = 1', '8: limit[1].user: "dora" is neither in [auth.users] nor in'),
        ('[[limit]]\ngroup = "dsks"\nconnections = 1', '8: limit[1].group: there is no group "dsks" in [auth.groups]'),
        (
            '[[limit]]\nconnections = 1\n[[limit]]\nuser = "bob"\nconnections = 2',
            "9: limit[2]: it limits nobody, because limit[1] comes first and is for every user: put that last",
        ),
    ],
)
def test_limits_that_never_apply(tables: str, warning: str) -> None:
    (found,) = limit_warnings(tables)
    assert found.startswith(warning)


def test_limits_need_users() -> None:
    (found,) = limit_warnings("[[limit]]\nconnections = 1", auth="")
    assert found.startswith("1: limit: there are no users whose names are checked")


def test_a_login_service_may_know_users_and_groups_that_the_config_does_not() -> None:
    hook = '[auth.hook]\nurl = "http://127.0.0.1/login"\n' + AUTH
    limits = '[[limit]]\nuser = "dora"\nconnections = 1\n[[limit]]\ngroup = "x"\nconnections = 1'
    assert not limit_warnings(limits, hook)
    found = lint(parse_settings(hook + ADMIN + '[[permission]]\ngroup = "x"\npublish = ["of/%u"]\n'))
    assert [one for one in found if one.key.startswith("permission")] == []
