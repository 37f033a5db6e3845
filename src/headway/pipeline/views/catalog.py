"""The tables that SQL can name, made as they are asked for.

Nobody reads the SQL but Spark. It says which table it does not know, gets that, and is asked again; so only what a view
reads is looked at, and which tables that are is known for certain.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headway.core.base import ConfigError
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.error_text import error_text
from headway.pipeline.source.options import Options
from headway.pipeline.views.schema import declared, inferred
from headway.pipeline.views.tables import read_table
from headway.server.config import SourceTable


class Catalog:
    def __init__(self, spark: SparkSession, tables: Mapping[str, SourceTable], admin: str) -> None:
        """``tables``: by name in small letters, with their topics."""
        self._spark = spark
        self._tables = tables
        self._admin = admin
        self._inferred: dict[str, StructType] = {}

    def topic(self, name: str) -> str:
        return str(self._tables[name].topic)

    @contextmanager
    def query(
        self, sql: str, kept: Mapping[str, StructType], limit_bytes: int | None = None
    ) -> Iterator[tuple[DataFrame, dict[str, StructType]]]:
        """The result, and the schemas of the tables that it is made of: those that are ``kept``, where they are. It can
        be used within the block, where these tables are defined. A batch reads so much of each at most. Raises
        ConfigError, SourceError."""
        schemas: dict[str, StructType] = {}
        columns: dict[str, list[str]] = {}

        def define(name: str) -> None:
            schemas[name] = self._schema(name, kept.get(name))
            table = read_table(self._spark, name, self._tables[name], schemas[name], self._admin, limit_bytes)
            table.createOrReplaceTempView(f"`{name}`")
            columns[name] = table.columns

        try:
            yield self._result(sql, define, schemas), schemas
        except PySparkException as error:
            raise ConfigError(sql_error(error, columns)) from None
        finally:
            for name in columns:
                self._spark.catalog.dropTempView(name)

    def _result(self, sql: str, define: Callable[[str], None], defined: Collection[str]) -> DataFrame:
        while True:
            try:
                result = self._spark.sql(sql)
                result.schema  # noqa: B018 - Spark looks at it now
            except AnalysisException as error:
                name = self._missing(error)
                if name is None or name in defined:
                    raise
                define(name)
            else:
                return result

    def _missing(self, error: AnalysisException) -> str | None:
        """Finds the table that Spark does not know. Raises ConfigError where we do not either."""
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return None
        wanted = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "").lower()
        if wanted not in self._tables:
            near = difflib.get_close_matches(wanted, self._tables, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"there is no table {wanted}: {hint}there are {', '.join(self._tables) or 'none'}")
        return wanted

    def _schema(self, name: str, kept: StructType | None) -> StructType:
        table = self._tables[name]
        assert table.topic is not None
        if table.ddl is not None:
            return declared(name, table.ddl)
        if kept is not None:
            return kept
        if name not in self._inferred:
            self._inferred[name] = inferred(name, table.topic, BrokerClient(self._admin, Options.timeout_s))
        return self._inferred[name]


def sql_error(error: PySparkException, columns: Mapping[str, list[str]]) -> str:
    """Words an error in the SQL of a view; ``columns``: by table, of those that it reads."""
    kind, said = error.getCondition() or "", error.getMessageParameters() or {}
    if kind.startswith("UNRESOLVED_COLUMN"):
        known = "; ".join(f"those of {table} are {', '.join(names)}" for table, names in columns.items())
        return f"there is no column {said.get('objectName', '').replace('`', '')}: {known}"
    if said.get("operation") == "streaming aggregations without watermark":
        tables = " or ".join(f"[tables.{table}]" for table in columns)
        return (
            'with mode = "append" a group is published when no more can come, and nothing says when that is: give '
            f'{tables} a watermark = "10s", or so, and group by window(timestamp, ...), or take mode = "update"'
        )
    return error_text(error)
