"""One consumer's page: how it stands, its last hour, and what its policy would do next."""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal

import msgspec
from aiohttp import web

from headway.core.base import ConfigError, Reason, Refused, parse_duration
from headway.core.consumer import Subscription
from headway.core.policy import METERS, Prospect, Reading, outlook
from headway.server.console.hour import Hour
from headway.server.console.rows import Known, Name, consumer_of, consumer_row, cut, deed_row, name_of, now_of
from headway.server.engine import Engine
from headway.server.http import USER, Refusal, json_answer, read_json

# -- consumers ---------------------------------------------------------------------------------------------------------


CLIENT_CHARS_MAX = 1024
FOUND_MAX = 100
"""Consumers of one client that are listed."""


class ReadingRow(msgspec.Struct, frozen=True):
    """One comparison of a condition: the value now, and the limit."""

    meter: str
    meaning: str
    op: str
    value: float
    threshold: float
    value_text: str
    limit_text: str
    held: bool


class RuleRow(msgspec.Struct, frozen=True):
    rule: int
    name: str
    action: str
    enforced: bool
    applies: bool
    phase: str
    held_s: float
    window_s: float
    readings: list[ReadingRow]


class Consumers:
    def __init__(self, engine: Engine, known: Known, hour: Hour) -> None:
        self._engine = engine
        self._known = known
        self._hour = hour

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/console/consumers/{key}", self._one), web.get("/v1/console/consumers", self._of_client)]

    def find(self, key: str) -> tuple[Name, Subscription | None]:
        """Returns the consumer of a key, and None if it has ended. Raises Refusal."""
        name = self._known.find(key)
        if name is None:
            raise Refusal(404, "no consumer is known by this key any more; ask for it by its client's name")
        return name, consumer_of(self._engine.broker.registry, name)

    async def _one(self, request: web.Request) -> web.Response:
        name, one = self.find(request.match_info["key"])
        engine, hour = self._engine, self._hour.consumers.get(name)
        verdicts = [verdict for verdict in engine.broker.verdicts.of(name.client) if verdict.filter == name.filter]
        body: dict[str, Any] = {
            "key": name.key, "client": cut(name.client, CLIENT_CHARS_MAX), "filter": cut(name.filter),
            "consumer": cut(name.consumer), "there": one is not None, "row": None, "rules": [],
            "policy": "", "patience_s": 0.0, "hour": None if hour is None else hour.as_columns(),
            "verdicts": [deed_row(verdict, name.key) for verdict in reversed(verdicts)],
        }  # fmt: skip
        if one is not None:
            now, case, sample = engine.now(), one.case, now_of(engine, one, {})
            case.state.keyed = one.keyed
            body |= {
                "row": consumer_row(engine, one, -1, self._known, {}), "policy": case.policy.name,
                "listener": one.session.listener, "user": cut(one.session.username or ""), "durable": one.durable,
                "patience_s": max(0.0, case.patient_until_s - now), "delivered": one.delivered.records,
                "rules": [_rule(rule) for rule in outlook(case.policy, case.state, sample, now)],
            }  # fmt: skip
        return json_answer(body)

    async def _of_client(self, request: web.Request) -> web.Response:
        """Lists the consumers of one client."""
        client, registry = request.query.get("client", ""), self._engine.broker.registry
        session, theirs = registry.sessions.get(client), registry.subscriptions_of(client)
        return json_answer({
            "connected": session is not None and session.connected,
            "total": len(theirs),
            "consumers": [
                {"key": self._known.key(name_of(one)), "filter": cut(one.filter), "consumer": cut(one.request.label)}
                for one in islice(theirs.values(), FOUND_MAX)
            ],
        })  # fmt: skip


def _rule(of: Prospect) -> RuleRow:
    return RuleRow(
        rule=of.rule, name=of.name, action=of.action.word, enforced=of.enforced, applies=of.applies, phase=of.phase,
        held_s=round(of.held_s, 2), window_s=of.window_s, readings=[_reading(one) for one in of.readings],
    )  # fmt: skip


def _reading(of: Reading) -> ReadingRow:
    meter = METERS[of.meter]
    form = meter.unit.format
    return ReadingRow(
        of.meter, meter.meaning, of.op, _number(of.value), _number(of.threshold), form(of.value), form(of.threshold),
        of.held,
    )  # fmt: skip


def _number(value: float) -> float:
    return min(value, 1e18)  # JSON has no infinity


# -- moves -------------------------------------------------------------------------------------------------------------
#
# Moves that operators make on a consumer: ``POST /v1/moves``, for who may change at the admin API.
#
# Who asks is part of the verdict, so ``headway why`` says who did what. A request has to be JSON and say so, which no
# form of another page can (the rest of that is in http/access.py).


KINDS = ("skip", "conflate", "patience", "kick")
LISTED = 5


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """A move, and the consumer it is for: by its key, or by its client's name and, of several, by its filter."""

    move: Literal["skip", "conflate", "patience", "kick"]
    key: str = ""
    client: str = ""
    filter: str = ""
    patience: str = "5m"


class Moves:
    def __init__(self, engine: Engine, consumers: Consumers) -> None:
        self._engine = engine
        self._consumers = consumers

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/moves", self._move)]

    async def _move(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise Refusal(415, "a move is asked for as application/json")
        wanted, who = await read_json(request, Wanted), operator(request)
        if wanted.move == "kick" and not wanted.key:
            return json_answer(kick(self._engine, wanted.client, who))
        one = self._consumer(wanted)
        if wanted.move == "kick":
            return json_answer(kick(self._engine, one.session.client, who))
        engine, operating = self._engine, self._engine.broker.operating
        now = engine.now()
        try:
            if wanted.move == "skip":
                verdict = operating.skip(one, who, now)
            elif wanted.move == "conflate":
                verdict = operating.conflate(one, who, now)
            else:
                verdict = operating.give_patience(one, parse_duration(wanted.patience), who, now)
        except Refused as no:
            raise Refusal(409, f"{one.session.client} on {one.filter}: {no}") from None
        except ConfigError as error:
            raise Refusal(400, f"patience: {error}") from None
        except OSError as error:
            raise Refusal(503, f"what the client has to get first cannot be read: {error.strerror}") from None
        engine.say_soon(one.session)
        return json_answer({"number": verdict.number, "text": verdict.text})

    def _consumer(self, wanted: Wanted) -> Subscription:
        """Raises Refusal."""
        if wanted.key:
            name, one = self._consumers.find(wanted.key)
            if one is None:
                raise Refusal(404, f"{name.client} on {name.filter} has ended")
            return one
        theirs = self._engine.broker.registry.subscriptions_of(wanted.client)
        found = [one for one in theirs.values() if wanted.filter in ("", one.filter)]
        if not found:
            what = f" on {wanted.filter!r}" if wanted.filter and theirs else ""
            raise Refusal(404, f"there is no consumer of a client {wanted.client!r}{what}")
        if len(found) > 1:
            some = ", ".join(one.filter for one in found[:LISTED]) + (", …" if len(found) > LISTED else "")
            raise Refusal(409, f"{wanted.client} has {len(found)} consumers; say which, by its filter: {some}")
        return found[0]


def operator(request: web.Request) -> str:
    return f"an operator ({request[USER]})" if request[USER] else "an operator"


def kick(engine: Engine, client: str, who: str) -> dict[str, str]:
    """Disconnects a client. Raises Refusal."""
    session = engine.broker.registry.sessions.get(client)
    if session is None or not session.connected:
        raise Refusal(404, f"no client {client!r} is connected")
    engine.broker.expel(session, Reason.ADMIN, f"disconnected by {who}", engine.now())
    engine.turn_soon()
    return {"text": f"{client}: disconnected by {who}"}
