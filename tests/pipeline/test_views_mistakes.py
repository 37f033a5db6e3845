"""What cannot be of a view: one line each, before any query is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw

from headway.core.base.errors import ConfigError
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import SourceError
from headway.pipeline.session import error_text
from headway.pipeline.views.run import start_view
from headway.pipeline.views.schema import (
    CHECKPOINT,
    LATEST_RECORDS,
    Catalog,
    TableShape,
    ViewManifest,
    check_manifest,
    latest_payloads,
    read_manifest,
    type_of,
    write_manifest,
)
from headway.server.config.settings import SourceTable, ViewTable

NOBODY = "http://127.0.0.1:9"
TABLES = {
    "flights": SourceTable(topic="flights/#", schema="carrier STRING, delay INT"),
    "queues": SourceTable(topic="queues", schema="`at` STRING, n INT", watermark="1s", time="at"),
    "site-4_load": SourceTable(topic="site-4/+/load", schema="kw INT"),
    "plain": SourceTable(topic="plain", schema="a INT", watermark="1s"),
    "broken": SourceTable(topic="broken", schema="a NUMBER"),
    "own": SourceTable(topic="own", schema="_topic STRING"),
    "twice": SourceTable(topic="twice", schema="a INT, A INT"),
}
GROUPS = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier"


def view(sql: str, key: str = "carrier", topic: str = "views/a", **more: str) -> ViewTable:
    return ViewTable(sql=sql, topic=topic, key=key, **more)


SQL = [
    (view("SELEC carrier"), "Syntax error at or near 'SELEC' (line 1, pos 0)"),
    (view("SELECT carrier FROM flight"), "there is no table flight: did you mean flights? there are flights, queues, "),
    (view("SELECT k FROM `Site-4_load`"), "there is no column k: those of site-4_load are kw, _offset, "),
    (view("SELECT carrier FROM other.flights"), "there is no table other.flights: did you mean flights? there are "),
    (view("SELECT x FROM zzz"), "there is no table zzz: there are flights, queues, site-4_load, plain, broken, own"),
    (
        view("SELECT carier FROM Flights"),
        "there is no column carier: those of flights are carrier, delay, _offset, _timestamp, _topic, _key, _deleted, "
        "timestamp",
    ),
    (view("SELECT carrier, count(*) FROM flights"), "The query does not include a GROUP BY clause"),
    (view("SELECT nosuch(carrier) FROM flights"), "Cannot resolve routine `nosuch`"),
    (view("SELECT 'UA' AS carrier"), "its sql reads no recorded topic, so there is nothing to keep up with"),
    (
        view(GROUPS, mode="append"),
        'with mode = "append" a group is published when no more can come, and nothing says when that is: give '
        '[tables.flights] a watermark = "10s", or so, and group by window(timestamp, ...), or take mode = "update"',
    ),
    (view("SELECT carrier FROM flights", mode="complete"), "Invalid streaming output mode: complete"),
    (view(f"{GROUPS} ORDER BY n"), "Sorting is not supported on streaming DataFrames/Datasets, unless it is on"),
    (view(GROUPS, key="Carrier"), "its key Carrier is no column of its result: carrier, n"),
    (view("SELECT struct(carrier) AS a FROM flights", key="a"), "its key a is STRUCT<CARRIER:STRING>; a key is a text"),
    (view("SELECT carrier, 1 AS _deleted FROM flights"), "_deleted says which rows are deletes, true "),
    (
        view("SELECT *, delay / 2 AS half FROM flights", key="half"),
        "its key half is DOUBLE, and deletes need a key of which there is one spelling: CAST it AS STRING, or leave",
    ),
    (view("SELECT carrier, carrier FROM flights"), "two columns of its result are called carrier: give one of them"),
    (view(GROUPS, topic="flights/all"), "it would read what it publishes: flights/all is in table flights (flights/#)"),
    (
        view("SELECT n FROM queues", key="n"),
        "tables.queues.time: a watermark is of a column of type TIMESTAMP, and at is STRING; [tables.queues] schema = ",
    ),
    (view("SELECT a FROM broken", key="a"), "tables.broken.schema: Unsupported data type"),
    (view("SELECT 1 FROM own"), "table own: the payload's field _topic has the name of a column that every table has"),
    (view("SELECT 1 FROM twice"), "table twice: there are two fields A, and SQL does not tell capital letters from"),
]


@pytest.mark.parametrize(("wrong", "says"), SQL, ids=[says[:50] for _, says in SQL])
def test_what_is_wrong_with_a_view_is_one_line(
    spark: SparkSession, tmp_path: Path, wrong: ViewTable, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        start_view(spark, "a", wrong, Catalog(spark, TABLES, NOBODY), tmp_path / "a", NOBODY)
    said = str(caught.value)
    assert said.startswith(says)
    assert "\n" not in said
    assert "SQLSTATE" not in said
    assert spark.catalog.listTables() == []
    assert spark.streams.active == []


# -- what was kept ----------------------------------------------------------------------------------------------------

SCHEMA = StructType().add("carrier", "string").add("delay", "long").add("at", "timestamp")


def kept(sql: str = GROUPS, topic: str = "flights/#", schema: StructType = SCHEMA) -> ViewManifest:
    return ViewManifest.of(view(sql), {"flights": TableShape(topic, schema)}, "view-a-1")


def begun(folder: Path) -> Path:
    (folder / CHECKPOINT / "offsets").mkdir(parents=True)
    (folder / CHECKPOINT / "offsets" / "0").touch()
    return folder


def test_what_a_view_was_comes_back_as_it_was_once_it_has_begun(tmp_path: Path) -> None:
    write_manifest(tmp_path, kept())
    assert read_manifest(tmp_path) is None
    assert read_manifest(begun(tmp_path)) == kept()
    check_manifest(tmp_path, kept(), kept("  " + GROUPS.replace(" ", "\n  ")))


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (kept(GROUPS + " HAVING n > 1"), "its sql was changed; "),
        (kept(topic="flights/ua"), "table flights was flights/# and is flights/ua now; "),
        (
            kept(schema=StructType().add("carrier", "string").add("delay", "double").add("tail", "string")),
            "table flights: delay was BIGINT and is DOUBLE now, table flights: at TIMESTAMP is gone, "
            "table flights: tail STRING is new; ",
        ),
    ],
)
def test_what_was_changed_since_is_one_line_that_says_what_to_do(tmp_path: Path, now: ViewManifest, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_manifest(tmp_path, kept(), now)
    assert str(caught.value) == f"{says}put that back, or begin anew: remove {tmp_path}"


def test_a_schema_that_was_inferred_holds_until_the_view_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    """So nobody has to be asked for it; and one that is declared since has to be the same."""
    write_manifest(begun(tmp_path), kept("SELECT delay FROM flights"))
    wanted = view("SELECT delay FROM flights", key="delay")
    tables = {"flights": SourceTable(topic="flights/#")}
    with Catalog(spark, tables, NOBODY).query(wanted.sql, kept().schemas()) as (result, schemas):
        assert (result.schema["delay"].dataType.simpleString(), schemas) == ("bigint", {"flights": SCHEMA})
    with pytest.raises(ConfigError, match="table flights: delay was BIGINT and is INT now"):
        start_view(spark, "a", wanted, Catalog(spark, TABLES, NOBODY), tmp_path, NOBODY)


def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    begun(tmp_path).joinpath("view.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"view.json is not what a run wrote; begin anew: remove "):
        read_manifest(tmp_path)


# -- what the records have --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -3], "bigint"), ([1, 2.5], "double"), ([True, None], "boolean"), (["a"], "string"), ([], "string"),
        ([None], "string"), ([1, "a"], "string"), ([True, 1], "string"), ([2**63], "string"), ([{"a": 1}, 3], "string"),
        ([[], [1]], "array<bigint>"), ([[]], "array<string>"),
        ([[{"a": 1}], [{"b": "x"}]], "array<struct<a:bigint,b:string>>"),
        ([{"a": 1, "b": {}}, {"c": 1.5, "a": None}], "struct<a:bigint,b:string,c:double>"),
    ],
)  # fmt: skip
def test_the_type_of_values(values: list[object], kind: str) -> None:
    assert type_of(values).simpleString() == kind


def test_the_latest_records_are_found_among_others(start: Callable[[str], BrokerProcess], tmp_path: Path) -> None:
    topics = '[[topic]]\nfilter = "a"\nkeep = "1d"\n[[topic]]\nfilter = "b"\nkeep = "1d"\n'
    broker = start(f'[journal]\npath = "{tmp_path / "journal"}"\n{topics}')
    with Raw(broker.port, "publisher") as publisher:
        for first in range(0, LATEST_RECORDS + 500, 250):
            publisher.publish_all("a", [b"%d" % number for number in range(first, first + 250)])
            publisher.publish_all("b", [b"x"] * 1_000)
        publisher.published("b", b"x")
    asked = BrokerClient(broker.admin, 10)
    assert latest_payloads("a", asked) == [b"%d" % number for number in range(500, LATEST_RECORDS + 500)]
    with pytest.raises(SourceError, match="c is not recorded; recorded is a, b"):
        latest_payloads("c", asked)
    broker.stop()


# -- what Spark says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("[A_B.C_D] It is wrong. SQLSTATE: 42601 (line 1, pos 3)\n\n== SQL ==", "It is wrong (line 1, pos 3)"),
        ("(STREAM_FAILED) [X] It fails. SQLSTATE: XXKST\n=== Query", "It fails"),
        ("(STREAM_FAILED) [USER_RAISED_EXCEPTION] a, offset 3: bad SQLSTATE: P0001\n=== Q", "a, offset 3: bad"),
        (
            "(STREAM_FAILED) [P] Found error: Traceback (most recent call last):\n  File\npyspark.errors.connect.Some"
            "Exception: [CAST] The value 'x' is bad. SQLSTATE: 22018\n== SQL ==\nSQLSTATE: 38000\n"
            "=== Streaming Query ===\na.b: c",
            "The value 'x' is bad",
        ),
        ("[X] Failed: Traceback\n  File\nheadway.pipeline.broker.errors.Away: no broker\n SQLSTATE", "no broker"),
    ],
)  # fmt: skip
def test_what_spark_says_in_short(said: str, line: str) -> None:
    assert error_text(said) == line
