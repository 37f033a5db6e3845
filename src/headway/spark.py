"""``import headway.spark``: Spark knows the format "headway".

- Before there is a session: Spark asks a Python of its own what formats there are. Where nobody says which
  (PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON), it takes the first ``python3`` on the PATH, which is another one when this
  one is called by its path (``.venv/bin/python job.py``). Then it is told to take this one.
- When there is a session already, the format is registered with it.
"""

from __future__ import annotations

import os
import sys

from headway.pipeline.source.source import register

__all__ = ["register"]

if "PYSPARK_PYTHON" not in os.environ and "PYSPARK_DRIVER_PYTHON" not in os.environ:
    os.environ["PYSPARK_PYTHON"] = sys.executable
register()
