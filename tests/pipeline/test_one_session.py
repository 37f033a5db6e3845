"""A process has one session; it is the others' here, so that ``test_session.py`` needs none of them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headway.core.base.errors import ConfigError
from headway.pipeline.session import open_session


def test_only_one_session_at_a_time(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="there is a Spark session in this process already"), open_session("two"):
        pass
    assert spark.range(3).count() == 3
