"""All live queries: one for all who ask for the same, whatever their dialect. It goes with the last of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from headway.core.base import Reason, Refused
from headway.core.consumer import (
    Feed,
    FeedKey,
    LiveTerms,
    Session,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
)
from headway.core.live.kept_rows import KeptRows
from headway.core.live.live_query import LiveQuery, Progress
from headway.core.live.ordered_pages import OrderedPages
from headway.core.live.page import Page
from headway.core.log import Lane, State
from headway.core.message import Record
from headway.core.query import (
    DECLARED,
    FOLLOWED_PER_CLIENT,
    PAGE_MAX,
    KeptOrder,
    KeptOrders,
    Match,
    Selection,
    StateRequest,
    ordering_of,
)
from headway.core.routing import Registry

ROWS_MAX = 64
"""So many different kept aggregates there may be."""
PAGES_MAX = 10_000
NAMES = ("order_by", "top", "skip", "select", "group_by")
BUILD_RECORDS = 256
"""So many records of a state are looked at in a turn, for each order and each of the aggregates that are not built."""
KEEP_UP = 2
"""A turn looks at so many times the records that came in it, so that what is behind catches up."""
TOLD_MAX, TOLD_EACH = 256, 32
"""A turn tells so many changes of pages and aggregates: of all together, but of each order and aggregate some."""
BROKEN_MAX = 32
"""So many subscribers are ended in a turn."""
TIDY_S = 1.0
DECLARE_AGAIN_S = 60.0
"""A declared order that had no room is tried again after this."""
LIVE_BYTES, PLACE_BYTES = 8_000, 700

Name = tuple[State, str, str | None, str]
"""The state, the filter, the selector and the order."""
Query = tuple[State, str, str | None, LiveTerms]
"""The state, the filter, the selector and the terms."""


class LiveQueries:
    def __init__(self, registry: Registry, orders: KeptOrders) -> None:
        self._registry = registry
        self._orders = orders
        self._queries: dict[Query, LiveQuery] = {}
        self._pages: dict[KeptOrder, OrderedPages] = {}
        self._rows: dict[KeptRows, None] = {}
        self._looked_sequence = 0
        self._tidy_s = self._declare_s = 0.0
        """The times of the next look at orders, and at those that are declared."""
        self._busy = False
        """Set when there is more to look at."""
        self.broken: list[tuple[Subscription, str]] = []
        """Subscribers of queries that could not go on, and why."""

    def __bool__(self) -> bool:
        return bool(self._queries or self._pages or self._registry.router.ordered)

    @property
    def has_work(self) -> bool:
        """Tells whether another turn is needed at once."""
        return self._busy or bool(self.broken)

    # -- in and out -------------------------------------------------------------------------------------------------

    def terms(self, session: Session, request: SubscribeRequest, group: str | None, filter: str) -> LiveTerms | None:
        """Returns what a subscriber wants to be kept up to date; None: every record, as any other.

        Raises :class:`Refused`."""
        options = request.options
        if not options.live:
            return None
        said = next(name for name in NAMES if getattr(options, name) is not None)
        if group is not None or session.expiry_s > 0:
            text = f"option {said}: not for shared subscriptions, nor for sessions that outlive their connection"
            raise _refused(text)
        if options.query or options.start != "end" or request.no_local:
            raise _refused(f"option {said}: not together with query, from, or No Local")
        state = self._registry.router.keyed_state(filter, options.key)
        if state is None:
            raise _refused(f"option {said}: no keyed [[topic]] covers {filter[:100]!a}")
        if options.group_by is not None and options.select is None:
            raise _refused("option group_by: say select, too: the columns, such as count(*)")
        if options.select is not None and (options.order_by, options.top, options.skip) != (None, None, None):
            text = "option select: not together with order_by, top and skip: a live page has whole records"
            raise _refused(text)
        return LiveTerms(
            state.key.text, options.order_by or "offset", options.top, options.skip or 0, options.select,
            options.group_by, options.interval_s or 0.0,
        )  # fmt: skip

    def open(self, key: FeedKey, session: Session) -> Feed:
        """Returns the feed of a subscription of this client with these terms. Raises :class:`Refused`."""
        router, terms = self._registry.router, key.live
        feed = router.feeds.get(key)
        if feed is not None:
            return feed
        assert terms is not None
        state = router.keyed_state(key.filter, terms.key)
        assert state is not None, "terms are checked"
        name = state, key.filter, key.selector, terms
        query = self._queries.get(name) or self._begin(name, session)
        feed = Feed(key, Lane(key.dialect, key.pool, self._registry.sequence), every, by_exchange=True)
        feed.live = query
        query.feeds[feed] = None
        router.add_feed(feed)
        return feed

    def _begin(self, name: Query, session: Session) -> LiveQuery:
        state, filter, selector, terms = name
        request = StateRequest(filter, selector, terms.order_by, terms.top, terms.skip)
        over = partial(self._over, name)
        query: LiveQuery
        if terms.select is not None:
            selection = Selection(terms.select, terms.group_by)
            if len(self._rows) >= ROWS_MAX:
                raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{ROWS_MAX} different aggregates are kept already")
            match = Match(state, request, ordering_of(request))
            topic = "/".join("-" if level in ("+", "#") else level for level in filter.split("/"))
            query = KeptRows(state, topic, selection, match, terms.every_s, self._registry, over)
            self._rows[query] = None
        else:
            query = self._begin_page(name, request, over, session)
        self._queries[name] = query
        self._busy = True
        return query

    def _begin_page(
        self, name: Query, request: StateRequest, over: Callable[[LiveQuery], None], session: Session
    ) -> Page:
        state, filter, selector, terms = name
        if terms.top is None or terms.skip + terms.top > PAGE_MAX:
            said = "say top" if terms.top is None else f"skip and top are {terms.skip + terms.top:,} together"
            raise _refused(f"a live page has {PAGE_MAX:,} records at most: {said}")
        if len(self._queries) >= PAGES_MAX:
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{PAGES_MAX:,} different pages are kept already")
        match = Match(state, request, ordering_of(request))
        client = f"user {session.username}" if session.username else f"client {session.client}"
        pages = self._follow((state, filter, selector, terms.order_by), match, client)
        if pages is None:
            text = f"there is no room for one more order of a state; one client has {FOLLOWED_PER_CLIENT} at most"
            raise Refused(Reason.CLIENT_MEMORY, f"{text}: ask again later, or for pages of the same order")
        page = Page(state, terms.skip, terms.skip + terms.top, match, terms.every_s, self._registry, over)
        pages.add(page)
        return page

    def _follow(self, name: Name, match: Match, client: str = DECLARED) -> OrderedPages | None:
        """Returns the pages of an order, which is kept as long as it has any; None if there is no room for it."""
        order = self._orders.followed(name, match.rank_of, client)
        if order is None:
            return None
        pages = self._pages.get(order)
        if pages is None:
            pages = self._pages[order] = OrderedPages(order)
        return pages

    def _let_go(self, pages: OrderedPages) -> None:
        """Keeps an order no longer that nobody needs."""
        if not pages.pages and not pages.declared:
            pages.close()
            del self._pages[pages.order]
            self._orders.tidy(self._registry.deferred.now)

    def _over(self, name: Query, query: LiveQuery) -> None:
        """Forgets a query that nobody asks for any more."""
        if self._queries.get(name) is query:
            del self._queries[name]
        if isinstance(query, KeptRows):
            self._rows.pop(query, None)
            query.close()
        for pages in list(self._pages.values()) if isinstance(query, Page) else ():
            if query in pages.pages:
                pages.remove(query)
                self._let_go(pages)
        self._registry.deferred.begin(query.shown.close(), self._registry.deferred.now)

    # -- the turn ---------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Looks at what has changed, and tells it."""
        upto = self._registry.sequence
        most = BUILD_RECORDS + KEEP_UP * (upto - self._looked_sequence)
        self._looked_sequence = upto
        if now >= self._tidy_s:
            self._tidy_s = now + TIDY_S
            self._orders.tidy(now)
            self._keep_declared(now)
        behind, done, left = False, list[Progress](), TOLD_MAX
        for pages in list(self._pages.values()):
            if pages.catch_up(upto, most):
                left -= pages.turn(now, max(left, TOLD_EACH))
                done.append(pages.progress)
            elif pages.order.gone:
                del self._pages[pages.order]
                pages.close()
                self._declare_s = now + DECLARE_AGAIN_S
                self._break(pages.pages, f"its order is not kept any more: {pages.order.gone}")
            else:
                behind = True
        behind = behind or left <= 0
        for rows in list(self._rows):
            if rows.catch_up(upto, most):
                left -= rows.turn(now, max(left, TOLD_EACH))
                behind = behind or rows.is_due(now)
                done.append(rows.progress)
            elif rows.broken:
                del self._rows[rows]
                rows.close()
                self._break([rows], rows.broken)
            else:
                behind = True
        self._busy = behind
        for progress in done:  # what was told has numbers, too
            progress.sequence, progress.time_s = self._registry.sequence, now

    def _keep_declared(self, now: float) -> None:
        """Sees to it that the orders that the configuration declares are kept, if there is room for them."""
        if now < self._declare_s:
            return
        declared: set[OrderedPages] = set()
        for state in self._registry.router.ordered:
            for order_by in state.orders:
                request = StateRequest(state.filter, order_by=order_by, top=0)
                name = state, state.filter, None, order_by
                pages = self._follow(name, Match(state, request, ordering_of(request)))
                if pages is not None:
                    declared.add(pages)
        for pages in list(self._pages.values()):
            pages.declared = pages in declared
            self._let_go(pages)

    def take_broken(self) -> list[tuple[Subscription, str]]:
        """Returns some subscribers of queries that could not go on, and why, each once."""
        broken, self.broken = self.broken[:BROKEN_MAX], self.broken[BROKEN_MAX:]
        return broken

    def _break(self, queries: Iterable[LiveQuery], why: str) -> None:
        """Gives queries up. Whoever asks for the same again gets a new one."""
        ended = dict.fromkeys(queries)
        self._queries = {name: one for name, one in self._queries.items() if one not in ended}
        for query in ended:
            for feed in query.feeds:
                self._registry.router.remove_feed(feed)
                self.broken += [(subscription, why) for subscription in feed.subscriptions]


def live_bytes(options: SubscriptionOptions) -> int:
    """Returns the memory that a live query with these options takes up, about, beside records and orders."""
    return LIVE_BYTES + PLACE_BYTES * min(options.top or 0, PAGE_MAX)


def every(_: Record) -> bool:
    return True


def _refused(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)
