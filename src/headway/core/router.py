"""Routing: from a topic to the feeds and states it goes to. Matched once per topic, then remembered."""

from __future__ import annotations

from headway.core.feed import Feed, FeedKey
from headway.core.state import State
from headway.core.topics import Trie

ROUTES_MAX = 100_000
"""Topics whose route is remembered; beyond that the memory starts afresh."""


class Route:
    """Where the records of one topic go."""

    __slots__ = ("feeds", "states")

    def __init__(self, feeds: list[Feed], states: list[State]) -> None:
        self.feeds = feeds
        self.states = states


class Router:
    def __init__(self) -> None:
        self.feeds: dict[FeedKey, Feed] = {}
        self.states: list[State] = []
        self._feed_trie: Trie[Feed] = Trie()
        self._state_trie: Trie[State] = Trie()
        self._routes: dict[str, Route] = {}

    def route(self, topic: str) -> Route:
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            route = Route(self._feed_trie.match(topic), self._state_trie.match(topic))
            self._routes[topic] = route
        return route

    def add_feed(self, feed: Feed) -> None:
        self.feeds[feed.key] = feed
        self._feed_trie.add(feed.key.filter, feed)
        self._routes.clear()

    def remove_feed(self, feed: Feed) -> None:
        if self.feeds.pop(feed.key, None) is not None:
            self._feed_trie.remove(feed.key.filter, feed)
            self._routes.clear()

    def add_state(self, state: State) -> None:
        self.states.append(state)
        self._state_trie.add(state.filter, state)
        self._routes.clear()

    def remove_state(self, state: State) -> None:
        self.states.remove(state)
        self._state_trie.remove(state.filter, state)
        self._routes.clear()
