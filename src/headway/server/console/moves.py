"""Moves that operators make on a consumer: ``POST /v1/moves``, for who may change at the admin API.

Who asks is part of the verdict, so ``headway why`` says who did what. A request has to be JSON and say so, which no
form of another page can (the rest of that is in http/access.py).
"""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp import web

from headway.core.base import ConfigError, Reason, Refused, parse_duration
from headway.core.consumer import Subscription
from headway.server.console.consumers import Consumers
from headway.server.engine import Engine
from headway.server.http import USER, Refusal, json_answer, read_json

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
