"""A Spark Declarative Pipeline from within a program: what is defined in the block is its graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import SparkSession


@contextmanager
def graph_of(spark: SparkSession, database: str) -> Iterator[str]:
    """The graph's name, for ``start_run`` after the block. Its tables are in this database, made if it is not there."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    graph = create_dataflow_graph(spark, default_catalog=None, default_database=database, sql_conf={})
    with (
        graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
        block_session_mutations(),
    ):
        yield graph
