"""Views as the broker's config sees them: their topics are keyed and recorded. Also the SQL names of recorded topics.

The broker needs no more of a view. Spark runs the query (``headway pipeline views``) and publishes its results like any
publisher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway.core.message import KeyExtractor, compile_key, covers, table_name
from headway.server.config.fields import shown
from headway.server.config.settings import Settings, SourceTable, TopicTable, ViewTable


def key_of(view: ViewTable) -> KeyExtractor:
    """Returns the key of a view's topic: the column ``key``."""
    return compile_key("/" + view.key.replace("~", "~0").replace("/", "~1"))


def topics_of(views: Iterable[ViewTable], topics: Iterable[TopicTable]) -> tuple[TopicTable, ...]:
    """Returns all keyed topics. A record is recorded with the first one that covers it, so topics of views come first:
    a wildcard of the file that also covers them changes neither their key nor how long they are kept. What else a
    ``[[topic]]`` of the same filter says holds for them, too."""
    topics = tuple(topics)
    beside = {topic.filter: topic for topic in topics}
    of_views: dict[str, TopicTable] = {}
    for view in views:
        topic = beside.get(view.topic) or TopicTable(filter=view.topic)
        of_views[view.topic] = topic.model_copy(update={"key": key_of(view), "keep": view.keep})
    return (*of_views.values(), *(topic for topic in topics if topic.filter not in of_views))


def tables_of(settings: Settings) -> dict[str, SourceTable]:
    """Returns all tables that SQL can name, with their topics. A name that fits two recorded topics is not given."""
    defaults = _named(settings.topics)
    found = {name: SourceTable(topic=topics[0]) for name, topics in defaults.items() if len(topics) == 1}
    for name, table in settings.tables.items():
        topic = table.topic or defaults[name.lower()][0]
        found[name.lower()] = table.model_copy(update={"topic": topic})
    return found


def _named(topics: Iterable[TopicTable]) -> dict[str, list[str]]:
    """Returns recorded topics by their SQL name."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        if topic.keep is not None and (name := table_name(topic.filter)):
            found.setdefault(name, []).append(topic.filter)
    return found


# -- errors -----------------------------------------------------------------------------------------------------------


def bad_views(settings: Settings, written: Iterable[TopicTable]) -> Iterator[str]:
    """Finds errors in views and tables; ``written`` are the ``[[topic]]`` tables of the file."""
    topics = {topic.filter: topic for topic in written if topic.keyed}
    taken: dict[str, str] = {}
    for name, view in settings.views.items():
        where, shown_topic = f"views.{name}", shown(view.topic)
        if not settings.journal.enabled:
            yield f"{where}: the result of a view is recorded in the journal, and there is none: add [journal]"
        if view.topic in taken:
            yield f"{where}.topic: {shown_topic} is the topic of views.{taken[view.topic]} already"
        taken.setdefault(view.topic, name)
        beside = topics.get(view.topic)
        if beside is not None and beside.key != key_of(view):
            yield (
                f"{where}.key: {shown(view.key)}, and the [[topic]] {shown_topic} says {shown(beside.key.text)}: leave "
                "that [[topic]] out, a view needs none"
            )
        elif beside is not None and beside.keep not in (None, view.keep):
            yield (
                f"{where}.keep: {view.keep}, and the [[topic]] {shown_topic} says {beside.keep}: leave that [[topic]] "
                "out, a view needs none"
            )
    yield from _bad_tables(settings)


def _bad_tables(settings: Settings) -> Iterator[str]:
    defaults = _named(settings.topics)
    recorded = [topic.filter for topic in settings.topics if topic.keep is not None]
    seen: set[str] = set()
    for name, table in settings.tables.items():
        where, lower = f"tables.{name}", name.lower()
        if lower in seen:
            yield f"{where}: there is a table of that name already; SQL does not tell capital letters from small ones"
        seen.add(lower)
        topics = defaults.get(lower, [])
        if table.topic is not None and not any(covers(filter, table.topic) for filter in recorded):
            yield f'{where}.topic: {shown(table.topic)} is not recorded: it takes a [[topic]] with keep = "7d", or so'
        elif table.topic is None and len(topics) > 1:
            yield f"{where}.topic: is missing: {' and '.join(topics)} would both be called {name}"
        elif table.topic is None and not topics:
            known = ", ".join(defaults) or "none"
            yield f"{where}.topic: is missing, for no recorded topic is called {name} by itself (known: {known})"
        if "time" in table.model_fields_set and table.watermark_s is None:
            yield f'{where}.time: is the column of the watermark, and there is none: add watermark = "10s", or so'
