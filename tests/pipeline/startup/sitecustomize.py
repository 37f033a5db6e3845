"""What Python reads first when this folder is in its path (conftest.py). Spark puts PySpark before all else, as a zip
of sources, and each of its Python processes would compile them anew. It is installed as well, compiled."""

import sys

sys.path[:] = [path for path in sys.path if "/pyspark/python/lib/" not in path]
