"""A Spark Declarative Pipeline from within a program: its graph is defined and run once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession


def run_graph(
    spark: SparkSession, database: str, home: Path, define: Callable[[], None], *,
    full_refresh: bool = False, runner: SparkSession | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Runs the graph that ``define`` defines, and yields what Spark reports meanwhile. Its tables are in the database,
    made if it is not there; Spark's state of it is in ``home``. ``runner``: the session that runs it, if another."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    graph = create_dataflow_graph(spark, default_catalog=None, default_database=database, sql_conf={})
    with (
        graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
        block_session_mutations(),
    ):
        define()
    with tempfile.TemporaryDirectory(prefix=f"headway-{database}-") as scratch:
        (home / "_state").mkdir(exist_ok=True)
        state = Path(scratch, "state")
        state.symlink_to(home / "_state")  # Spark would escape what is special in the folder's own path
        yield from start_run(
            runner or spark, graph, full_refresh=[], full_refresh_all=full_refresh, refresh=[], dry=False,
            storage=f"file://{state}",
        )  # fmt: skip
