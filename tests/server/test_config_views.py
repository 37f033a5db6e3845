"""Views in the config: what they make of topics, what their SQL calls them, and what each mistake says."""

from __future__ import annotations

import json
import re

import pytest
from tests.server.configs import mistakes

from headway.server.config.description import describe
from headway.server.config.fields import Keep
from headway.server.config.reading import default_text, parse_settings
from headway.server.config.settings import SourceTable, ViewTable, table_name, tables_of

JOURNAL = "[journal]\n"
FLIGHTS = JOURNAL + '[[topic]]\nfilter = "flights/#"\nkey = "/tailnum"\nkeep = "1d"\n'
SQL = 'sql = "SELECT carrier FROM flights"\n'
TO = 'topic = "views/delay"\nkey = "carrier"\n'
VIEW = f"[views.delay]\n{SQL}{TO}"
WEEK_S = 7 * 86_400.0


def test_the_topic_of_a_view_is_keyed_and_recorded_ahead_of_wildcards_that_cover_it() -> None:
    settings = parse_settings(JOURNAL + '[[topic]]\nfilter = "#"\nkeep = "1d"\n' + VIEW)
    assert [(topic.filter, topic.key.text, topic.keep) for topic in settings.topics] == [
        ("views/delay", "/carrier", Keep(WEEK_S, None)),
        ("#", "topic", Keep(86_400.0, None)),
    ]
    table = describe(settings)
    assert re.search(r"topic views/delay +keyed by /carrier, recorded for 7 d\n", table)
    assert re.search(r"view delay +views/delay by carrier, update, every 1 s\n", table)
    assert {"filter": "views/delay", "key": "/carrier"} in json.loads(settings.policies_text)["topic"]


def test_a_topic_table_that_says_the_same_is_no_mistake() -> None:
    for keep in ("", 'keep = "7d"\n'):
        settings = parse_settings(JOURNAL + f'[[topic]]\nfilter = "views/delay"\nkey = "/carrier"\n{keep}' + VIEW)
        assert [(topic.filter, topic.keep) for topic in settings.topics] == [("views/delay", Keep(WEEK_S, None))]


@pytest.mark.parametrize(("column", "pointer"), [("a b", "/a b"), ("a/b~c", "/a~1b~0c"), ("avg(delay)", "/avg(delay)")])
def test_any_column_can_be_a_key(column: str, pointer: str) -> None:
    settings = parse_settings(JOURNAL + VIEW.replace('key = "carrier"', f'key = "{column}"'))
    assert settings.topics[0].key.text == pointer


def test_everything_written_of_views_and_tables_arrives_in_base_units() -> None:
    settings = parse_settings(
        FLIGHTS + VIEW + 'every = "500ms"\nmode = "append"\nkeep = ["1d", "1GB"]\npartitions = 4\n'
        '[tables.ua]\ntopic = "flights/ua"\nschema = "delay INT"\nwatermark = "1m"\ntime = "at"\nmisfits = "skip"\n'
        'deletes = "rows"\n'
    )
    view, table = settings.views["delay"], settings.tables["ua"]
    assert (view.every_s, view.mode, view.keep, view.partitions) == (0.5, "append", Keep(86_400.0, 10**9), 4)
    assert (table.topic, table.ddl, table.watermark_s, table.time) == ("flights/ua", "delay INT", 60.0, "at")
    assert (table.misfits, table.deletes) == ("skip", "rows")
    assert "as fast as it goes" in describe(parse_settings(FLIGHTS + VIEW + "every = 0\n"))


def test_what_is_said_of_views_in_the_default_file_is_what_they_do() -> None:
    blocks = re.findall(r"^# (\[(?:views|tables)\..*\n(?:# .*\n)+)", default_text(), re.MULTILINE)
    settings = parse_settings(FLIGHTS + "".join(block.replace("\n# ", "\n") for block in blocks))
    (view,), (table,) = settings.views.values(), settings.tables.values()
    assert view == ViewTable(sql=view.sql, topic=view.topic, key=view.key)
    assert table == SourceTable(topic=table.topic, schema=table.ddl, watermark="10s")


@pytest.mark.parametrize(
    ("filter", "name"),
    [("flights/#", "flights"), ("a/+/b", "a_b"), ("Sensors/4", "sensors_4"), ("#", ""), ("a", "a"), ("a//b/", "a_b")],
)
def test_what_sql_calls_a_topic(filter: str, name: str) -> None:
    assert table_name(filter) == name


def test_every_recorded_topic_is_a_table_and_what_is_written_counts_for_more() -> None:
    settings = parse_settings(
        FLIGHTS + '[[topic]]\nfilter = "x/+/y"\nkeep = "1d"\n[[topic]]\nfilter = "x/y"\nkeep = "1d"\n'
        '[[topic]]\nfilter = "passing"\n' + VIEW + '[tables.FLIGHTS]\nwatermark = "1s"\n[tables.x_y]\ntopic = "x/y"\n'
    )
    tables = tables_of(settings)
    assert {name: table.topic for name, table in tables.items()} == {
        "flights": "flights/#", "views_delay": "views/delay", "x_y": "x/y",
    }  # fmt: skip
    assert tables["flights"].watermark_s == 1.0


MISTAKES = [
    (VIEW, "views.delay: the result of a view is recorded in the journal, and there is none: add [journal]"),
    (JOURNAL + "[views]\na = 1", "views.a: expected a table, [views.a], not 1"),
    (JOURNAL + "[[views]]\na = 1", "views: expected a table, [views], not a list"),
    (JOURNAL + f"[views.a]\n{TO}", "views.a.sql: is missing"),
    (JOURNAL + f"[views.a]\nsql = ' '\n{TO}", 'views.a.sql: expected text, not " "'),
    (JOURNAL + f"[views.'a/b']\n{SQL}{TO}", 'views."a/b": "a/b" is not a name for SQL: letters, digits and _'),
    (JOURNAL + f"[views.a]\n{SQL}key = 'k'\ntopic = 'views/#'", "views.a.topic: topic 'views/#' contains a wildcard"),
    (JOURNAL + f"[views.a]\n{SQL}key = 'k'\ntopic = '$SYS/a'", 'views.a.topic: "$SYS/a": topics that begin with $ are'),
    (JOURNAL + f"[views.a]\n{SQL}key = 'k'\ntopic = 7", "views.a.topic: 7 is not a topic such as"),
    (JOURNAL + f"[views.a]\n{SQL}key = '/k'\ntopic = 'v'", 'views.a.key: "/k" is not the name of a column, such as'),
    (JOURNAL + VIEW + "evry = 1", "views.delay.evry: unknown key (did you mean every?)"),
    (JOURNAL + VIEW + "every = '1'", 'views.delay.every: "1" is not a duration such as'),
    (JOURNAL + VIEW + "mode = 'upsert'", 'views.delay.mode: "upsert" is none of update, append, complete'),
    (JOURNAL + VIEW + "keep = 'long'", 'views.delay.keep: "long" is neither a time such as "7d" nor a size'),
    (JOURNAL + VIEW + "partitions = 0", "views.delay.partitions: 0 is too little"),
    (JOURNAL + VIEW + VIEW.replace("delay]", "b]"), 'views.b.topic: "views/delay" is the topic of views.delay already'),
    (
        JOURNAL + "[[topic]]\nfilter = 'views/delay'\nkey = '/origin'\n" + VIEW,
        'views.delay.key: "carrier", and the [[topic]] "views/delay" says "/origin": leave that [[topic]] out',
    ),
    (
        JOURNAL + "[[topic]]\nfilter = 'views/delay'\nkey = '/carrier'\nkeep = '1GB'\n" + VIEW,
        'views.delay.keep: 7 d, and the [[topic]] "views/delay" says 1 GB: leave that [[topic]] out',
    ),
    (FLIGHTS + "[tables.a]", "tables.a.topic: is missing, for no recorded topic is called a by itself (known: fli"),
    (FLIGHTS + "[tables.a]\ntopic = 'b/#'", 'tables.a.topic: "b/#" is not recorded: it takes a [[topic]] with keep'),
    (FLIGHTS + "[tables.a]\ntopic = 'flights/#'\ndeletes = 'drop'", 'tables.a.deletes: "drop" is none of skip, rows'),
    (FLIGHTS + "[tables.a]\ntopic = 'flights/#'\nmisfits = 'drop'", 'tables.a.misfits: "drop" is none of fail, skip'),
    (FLIGHTS + "[tables.flights]\ntime = 'at'", "tables.flights.time: is the column of the watermark, and there is"),
    (FLIGHTS + "[tables.flights]\nwatermark = 'x'", 'tables.flights.watermark: "x" is not a duration'),
    (FLIGHTS + "[tables.flights]\n[tables.Flights]", "tables.Flights: there is a table of that name already"),
    (
        FLIGHTS + "[[topic]]\nfilter = 'flights'\nkeep = '1d'\n[tables.flights]\nwatermark = '1s'",
        "tables.flights.topic: is missing: flights/# and flights would both be called flights",
    ),
]


@pytest.mark.parametrize(("text", "says"), MISTAKES, ids=[says[:60] for _, says in MISTAKES])
def test_every_mistake_is_one_clear_line(text: str, says: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith(says)
    assert len(line) < 300
