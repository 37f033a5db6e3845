"""All live queries: one for all who ask for the same, whatever their dialect. It goes with the last of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
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
from headway.core.live.ordered_pages import OrderedPages, Page
from headway.core.log import Lane, Owners
from headway.core.message import Record
from headway.core.query import (
    ALL_RECORDS,
    PAGE_MAX,
    KeptOrder,
    KeptOrders,
    Match,
    Selection,
    StateRequest,
    keyed_state,
    ordering_of,
)
from headway.core.routing import Registry
from headway.core.selector import cost_of

ROWS_MAX = 64
"""So many different kept aggregates there may be."""
PAGES_MAX = 10_000
NAMES = ("order_by", "top", "skip", "select", "group_by")
LOOKS_MAX, LOOKS_EACH = 1024, 16
"""A turn looks at so many records of states: for all orders and aggregates together, but for each of them some. Those
that publish pay for these looks (``Publishing.keep``), so nearly always all orders and aggregates catch up."""
TOLD_MAX, TOLD_EACH = 256, 32
"""A turn tells so many changes of pages and aggregates: of all together, but of each order and aggregate some."""
BROKEN_MAX = 32
"""So many subscribers are ended in a turn."""
TIDY_S = 1.0
DECLARE_AGAIN_S = 60.0
"""A declared order that had no room is tried again after this."""
LIVE_BYTES, PLACE_BYTES = 8_000, 700

Query = tuple[str, str | None, LiveTerms]
"""The filter, the selector and the terms."""


class LiveQueries:
    def __init__(self, registry: Registry, orders: KeptOrders) -> None:
        self._registry = registry
        self._orders = orders
        self._queries: dict[Query, LiveQuery] = {}
        share = registry.queue_owners.share
        self._row_owners, self._page_owners = Owners(share), Owners(share)
        """The aggregates and the pages of each owner: those that its clients were the first to ask for."""
        self._pages: dict[KeptOrder, OrderedPages] = {}
        self._rows: dict[KeptRows, None] = {}
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
        return bool(self.broken) or (self._busy and bool(self))

    # -- in and out -------------------------------------------------------------------------------------------------

    def terms(self, session: Session, request: SubscribeRequest, group: str | None, filter: str) -> LiveTerms | None:
        """Returns what a subscriber wants to be kept up to date; None: every record, as any other.

        Raises :class:`Refused`."""
        options = request.options
        if not options.live:
            return None
        said = next(name for name in NAMES if getattr(options, name) is not None)
        state = keyed_state(self._registry, session, options, group, filter, said)
        if options.query or options.start != "end" or request.no_local:
            raise _refused(f"option {said}: not together with query, from, or No Local")
        if state is None:
            raise _refused(f"option {said}: no keyed [[topic]] covers {filter[:100]!a}")
        if options.group_by is not None and options.select is None:
            raise _refused("option group_by: say select, too: the columns, such as count(*)")
        if options.select is not None and (options.order_by, options.top, options.skip) != (None, None, None):
            text = "option select: not together with order_by, top and skip: a live page has whole records"
            raise _refused(text)
        return LiveTerms(
            state, options.order_by or "offset", ALL_RECORDS if options.top is None else options.top,
            options.skip or 0, options.select, options.group_by, options.interval_s or 0.0,
        )  # fmt: skip

    def open(self, key: FeedKey, terms: LiveTerms, session: Session) -> Feed:
        """Returns the feed of a subscription of this client with these terms. Raises :class:`Refused`."""
        router = self._registry.router
        feed = router.feeds.get(key)
        if feed is not None:
            return feed
        name = key.filter, key.selector, terms
        query = self._queries.get(name) or self._begin(name, session)
        feed = Feed(key, Lane(key.dialect, key.pool, self._registry.sequence), every, by_exchange=True)
        feed.live = query
        query.feeds[feed] = None
        router.add_feed(feed)
        return feed

    def _begin(self, name: Query, session: Session) -> LiveQuery:
        filter, selector, terms = name
        request = StateRequest(filter, selector, terms.order_by, terms.top, terms.skip)
        over = partial(self._over, name)
        query: LiveQuery
        if terms.select is not None:
            selection = Selection(terms.select, terms.group_by)
            _check_share(self._row_owners, session.owner, len(self._rows), ROWS_MAX, "aggregates")
            match = Match(terms.state, request, ordering_of(request))
            topic = "/".join("-" if level in ("+", "#") else level for level in filter.split("/"))
            query = KeptRows(terms.state, topic, selection, match, terms.every_s, self._registry, over,
                             cost_of(selector))  # fmt: skip
            self._rows[query] = None
        else:
            query = self._begin_page(name, request, over, session)
        query.owner = session.owner
        self._queries[name] = query
        self._owners_of(query).add(query.owner, 1)
        self._busy = True
        return query

    def _begin_page(
        self, name: Query, request: StateRequest, over: Callable[[LiveQuery], None], session: Session
    ) -> Page:
        filter, selector, terms = name
        state = terms.state
        if terms.skip + terms.top > PAGE_MAX:
            said = "say top" if terms.top == ALL_RECORDS else f"skip and top are {terms.skip + terms.top:,} together"
            raise _refused(f"a live page has {PAGE_MAX:,} records at most: {said}")
        _check_share(self._page_owners, session.owner, len(self._queries), PAGES_MAX, "pages")
        match = Match(state, request, ordering_of(request))
        client = f"user {session.username}" if session.username else f"client {session.client}"
        wanted = state, filter, selector, terms.order_by
        pages = self._pages_of(self._orders.followed(wanted, match.rank_of, client, session.owner))
        page = Page(state, terms.skip, terms.skip + terms.top, pages.head, match, terms.every_s, self._registry, over)
        pages.add(page)
        return page

    def _pages_of(self, order: KeptOrder) -> OrderedPages:
        """Returns the pages of an order, which is kept as long as it has any."""
        return self._pages.get(order) or self._pages.setdefault(order, OrderedPages(order))

    def _let_go(self, pages: OrderedPages) -> None:
        """Keeps an order no longer that nobody needs."""
        if not pages.pages and not pages.declared:
            pages.close()
            del self._pages[pages.order]
            self._orders.tidy(self._registry.deferred.now)

    def _owners_of(self, query: LiveQuery) -> Owners:
        return self._row_owners if isinstance(query, KeptRows) else self._page_owners

    def _forget(self, name: Query) -> None:
        query = self._queries.pop(name)
        self._owners_of(query).add(query.owner, -1)

    def _over(self, name: Query, query: LiveQuery) -> None:
        """Forgets a query that nobody asks for any more."""
        if self._queries.get(name) is query:
            self._forget(name)
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
        if now >= self._tidy_s:
            self._tidy_s = now + TIDY_S
            self._orders.tidy(now)
            self._keep_declared(now)
        behind, done, left = False, list[Progress](), TOLD_MAX
        looks, others = LOOKS_MAX, len(self._pages) + len(self._rows)
        for pages in list(self._pages.values()):
            looks -= pages.catch_up(upto, max(LOOKS_EACH, looks // others))
            others -= 1
            if pages.is_current(upto):
                left -= pages.turn(now, max(left, TOLD_EACH))
                done.append(pages.progress)
            elif pages.broken:
                del self._pages[pages.order]
                pages.close()
                self._declare_s = now + DECLARE_AGAIN_S
                self._break(pages.pages, pages.broken)
            else:
                behind = True
        behind = behind or left <= 0
        for rows in list(self._rows):
            looks -= rows.catch_up(upto, max(LOOKS_EACH, looks // others))
            others -= 1
            if rows.is_current(upto):
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
                rank_of = Match(state, request, ordering_of(request)).rank_of
                with suppress(Refused):
                    declared.add(self._pages_of(self._orders.followed((state, state.filter, None, order_by), rank_of)))
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
        for name in [name for name, one in self._queries.items() if one in ended]:
            self._forget(name)
        for query in ended:
            for feed in query.feeds:
                self._registry.router.remove_feed(feed)
                self.broken += [(subscription, why) for subscription in feed.subscriptions]


def live_bytes(options: SubscriptionOptions) -> int:
    """Returns the memory that a live query with these options takes up, about, beside records and orders."""
    return LIVE_BYTES + PLACE_BYTES * min(options.top or 0, PAGE_MAX)


def every(_: Record) -> bool:
    return True


def _check_share(owners: Owners, owner: str, there: int, most: int, what: str) -> None:
    """Raises :class:`Refused` if there is no room for one more query, or its owner has its share of them."""
    if there >= most:
        raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{most:,} different {what} are kept already")
    if not owners.has_room(owner, 1, most):
        text = (f"pool.max_user_share permits {owner} {int(most * owners.share):,} of the {most:,} different {what} "
                "that there may be: end some, or ask for one that others have")  # fmt: skip
        raise Refused(Reason.USER_LIMIT, text)


def _refused(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)
