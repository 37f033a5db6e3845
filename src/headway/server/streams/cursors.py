"""Cursors over HTTP: a Spark query reports its position, and learns what the broker has decided about it.

``PUT /v1/cursors/NAME`` with ``{"topic", "offset", "policy", "patience", "wait_ms"}`` attaches the query and moves its
cursor to the next record that it wants. ``POST .../leave`` detaches a query that has stopped, and keeps its cursor.
``DELETE`` deletes the cursor. The records themselves come from ``/v1/topics/TOPIC/records`` (records.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from headway.core.base import Reason, Refused
from headway.core.clients import POLLS_PROTOCOL
from headway.core.consumer import ConnectionlessOutlet, Poll, Session, parse_options
from headway.core.message import BadTopic, overlaps, validate_filter
from headway.core.permission import Operation
from headway.core.policy import DecisionKind
from headway.server.engine import Engine
from headway.server.http import IDENTITY, USER, Quota, Refusal, json_answer, read_json, refusal_for
from headway.server.journal import RecordedTopic
from headway.server.loop import Repeating
from headway.server.recorded import NotRecorded, OffsetGone, deleted_ends, filters_of, latest, whole_from
from headway.server.streams.read_right import check_right
from headway.server.streams.records import not_recorded
from headway.store.journal import ReadableStream
from headway.wire.mqtt.dialect import MqttDialect

SILENT_S = 300.0
"""A query that is silent for this long is detached."""
LOOK_EVERY_S = 30.0
WAIT_MS_MAX = 10_000


class CursorRequest(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    offset: int
    policy: str | None = None
    patience: str | None = None
    """For how long it may read nothing more without being slow."""
    wait_ms: int = 0
    deleted: frozenset[int] = frozenset()
    """The ends of what it knows to be deleted (``deleted_ends``)."""


class CursorHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._polls: dict[str, tuple[Poll, ConnectionlessOutlet]] = {}
        """Attached cursors by name."""
        self._heard_s: dict[str, float] = {}
        self._looks = Repeating(engine.loop, LOOK_EVERY_S, self._look)
        self._quota = Quota(engine.settings.server.cursors_max, "server.cursors_max", "DELETE /v1/cursors/NAME",
                            lambda name: self._session(name) is not None)  # fmt: skip
        sessions = engine.broker.registry.sessions.values()
        self._quota.restore((one.client, one.username or "") for one in sessions if one.protocol == POLLS_PROTOCOL)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.put("/v1/cursors/{name}", self._put),
            web.post("/v1/cursors/{name}/leave", self._leave),
            web.delete("/v1/cursors/{name}", self._delete),
        ]

    def close(self) -> None:
        self._looks.stop()

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _put(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self._may(request)
        wish = await read_json(request, CursorRequest)
        version = self._engine.permissions.version
        try:
            self._may(request)
            validate_filter(wish.topic)
            self._check(request)
            check_right(self._engine, request, name, Operation.SUBSCRIBE, wish.topic)
            found = self._recorded(request, wish.topic)
            fresh = name not in self._engine.broker.registry.sessions
            poll = self._attached(name, request, wish, found)
            if fresh:
                await self._journaled()
            await self._more(poll, found, wish)
            self._check(request)
            if self._engine.permissions.version != version:
                self._engine.permissions.check_user(request[IDENTITY])
                self._may(request)  # a reload may have revoked it; the cursor itself ends a moment later
                check_right(self._engine, request, name, Operation.SUBSCRIBE, wish.topic)
            return json_answer(self._told(request, poll, found))
        except BadTopic as error:
            raise Refusal(400, str(error)) from None
        except Refused as refused:
            raise Refusal(403, str(refused)) from None

    def _may(self, request: web.Request) -> None:
        """Raises Refusal if the cursor is not for this user."""
        name = request.match_info["name"]
        check_right(self._engine, request, name, Operation.DECLARE, f"$cursor/{name}")

    async def _leave(self, request: web.Request) -> web.Response:
        self._may(request)
        self._gone(self._known(request))
        return web.Response(status=204)

    async def _delete(self, request: web.Request) -> web.Response:
        self._may(request)
        session = self._known(request)
        self._gone(session)
        self._quota.leave(session.client)
        self._engine.broker.polls.end(session, self._engine.now())
        await self._journaled()
        return web.Response(status=204)

    async def _journaled(self) -> None:
        """Waits until what was changed is on disk."""
        if self._engine.journal is not None:
            await self._engine.journal.flush()

    # -- carrying out -----------------------------------------------------------------------------------------------

    def _recorded(self, request: web.Request, topic: str) -> list[RecordedTopic]:
        """Returns the recorded topics with records of ``topic``. Raises Refusal."""
        journal = self._engine.journal
        recorded = {one.filter: one for one in journal.archive.recorded.values()} if journal is not None else {}
        try:
            return [recorded[filter] for filter in filters_of(topic, recorded)]
        except NotRecorded:
            raise not_recorded(self._engine, request, topic, recorded) from None

    def _attached(self, name: str, request: web.Request, wish: CursorRequest, found: list[RecordedTopic]) -> Poll:
        engine, now, user = self._engine, self._engine.now(), request[USER]
        rights = engine.permissions.rights(request[IDENTITY], name)
        self._check(request)
        streams, broker = _streams(found), engine.broker
        poll = self._polls[name][0] if name in self._polls else None
        moves = poll is None or wish.offset > poll.offset
        if moves and not deleted_ends(streams, wish.offset) <= wish.deleted:
            gone = OffsetGone(wish.offset, whole_from(streams))
            raise Refusal(410, str(gone), earliest=gone.earliest)
        # An offset beyond the end: records were lost, or it is another broker's. ``latest`` tells the query.
        offset = min(max(1, wish.offset), max(one.stream.last_sequence for one in found) + 1)
        if poll is None:
            deletion_notice = broker.deletion_notice(name)
            if deletion_notice is not None:
                raise self._ended(request, wish.topic, "deleted", deletion_notice)
        self._quota.take(name, user)
        try:
            asked = parse_options([] if wish.patience is None else [("patience", wish.patience)])
            poll = broker.polls.attach(name, wish.topic, offset, wish.policy, MqttDialect(5, 1), now, user or None,
                                       asked.patience_s, rights)  # fmt: skip
        except Refused as error:
            raise refusal_for(error) from None
        poll.move(offset, now)
        outlet = poll.session.outlet
        assert isinstance(outlet, ConnectionlessOutlet)
        self._polls[name] = poll, outlet
        self._heard_s[name] = now
        self._looks.start()
        engine.turn_soon()
        return poll

    def _sees(self, request: web.Request, filter: str) -> bool:
        """Tells whether the user may know how much there is to read. All records of the recorded topics that the filter
        overlaps are counted, so that is for users who may read all of these, and for operators."""
        journal = self._engine.journal
        assert journal is not None
        rights = self._engine.permissions.rights(request[IDENTITY], request.match_info["name"])
        counted = (one.filter for one in journal.archive.recorded.values() if overlaps(one.filter, filter))
        return self._engine.settings.auth.names(request[USER], change=False) or all(map(rights.sees, counted))

    def _check(self, request: web.Request) -> None:
        """Raises Refusal, once, if the broker has ended the cursor."""
        name = request.match_info["name"]
        if name not in self._polls:
            return
        poll, outlet = self._polls[name]
        if outlet.last_word is not None:
            reason, text = outlet.last_word
        elif poll.ended:
            reason, text = Reason.SUBSCRIPTION_ENDED, self._why(poll) or "its cursor was deleted"
        else:
            return
        del self._polls[name]
        raise self._ended(request, poll.filter, str(reason), text)

    def _ended(self, request: web.Request, filter: str, reason: str, text: str) -> Refusal:
        """Returns the answer to who asks for a cursor that has ended. ``text``: why; a verdict has figures."""
        return Refusal(409, text if self._sees(request, filter) else f"the broker ended it: {reason}", reason=reason)

    async def _more(self, poll: Poll, found: list[RecordedTopic], wish: CursorRequest) -> None:
        """Waits until there are records for it, for ``wait_ms`` at most."""
        journal, loop = self._engine.journal, self._engine.loop
        assert journal is not None
        until = loop.time() + min(wish.wait_ms, WAIT_MS_MAX) / 1000
        while latest(_streams(found), journal.committed_sequence) <= poll.offset and not poll.ended:
            left_s = until - loop.time()
            if left_s <= 0:
                return
            await asyncio.wait([journal.next_commit()], timeout=left_s)

    def _told(self, request: web.Request, poll: Poll, found: list[RecordedTopic]) -> dict[str, Any]:
        journal = self._engine.journal
        assert journal is not None
        gap, sees = poll.take_gap(), self._sees(request, poll.filter)
        said: dict[str, Any] | None = None
        if gap is not None:
            said = {"reason": gap.reason} | ({"records": gap.records, "text": self._why(poll)} if sees else {})
        lag = {"lag_records": poll.lag_records, "lag_bytes": poll.lag_bytes} if sees else {}
        return {
            "offset": poll.offset, "latest": latest(_streams(found), journal.committed_sequence), **lag, "gap": said,
            "patience_ms": round(poll.patience_s * 1000),
        }  # fmt: skip

    def _why(self, poll: Poll) -> str:
        """Returns the text of the last rule that fired, not of a later return within limits."""
        verdicts = self._engine.broker.verdicts.of(poll.session.client)
        fired = [verdict for verdict in verdicts if verdict.kind is DecisionKind.FIRE]
        return max(fired, key=lambda verdict: verdict.number).text if fired else ""

    # -- sessions ---------------------------------------------------------------------------------------------------

    def _session(self, name: str) -> Session | None:
        session = self._engine.broker.registry.sessions.get(name)
        return session if session is not None and session.protocol == POLLS_PROTOCOL else None

    def _known(self, request: web.Request) -> Session:
        """Returns the session of the cursor in the request. Raises Refusal."""
        session = self._session(request.match_info["name"])
        if session is None:
            raise Refusal(404, "there is no such cursor")
        return session

    def _gone(self, session: Session) -> None:
        self._polls.pop(session.client, None)
        self._heard_s.pop(session.client, None)
        self._engine.broker.polls.leave(session, self._engine.now())
        self._engine.turn_soon()

    def _look(self) -> None:
        """Detaches queries that were silent for ``SILENT_S``."""
        now = self._engine.now()
        for name, heard_s in list(self._heard_s.items()):
            session = self._session(name)
            if session is None or name not in self._polls:
                del self._heard_s[name]
            elif now - heard_s > max(SILENT_S, self._polls[name][0].patience_s):
                self._gone(session)
        if not self._heard_s:
            self._looks.stop()


def _streams(found: list[RecordedTopic]) -> list[ReadableStream]:
    return [one.stream for one in found]
