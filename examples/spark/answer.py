"""From recorded flights to an answer and a picture: python answer.py [--admin http://HOST:PORT] [--out DIR]

The broker records the topic: headway serve --record 'flights/#' (or [journal], and a [[topic]] with keep).
A batch asks what is there; a stream reads it in pieces, and goes on from where it was when this is run again.
"""

import argparse
import sys
import time
from pathlib import Path

import plotly.graph_objects as go
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import headway.spark  # Spark knows the format "headway", whichever Python runs this

RECORDS_A_BATCH = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--admin", default="http://127.0.0.1:9883", help="the broker (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("answer"), help="for the picture (default: %(default)s)")
    options = parser.parse_args()
    began = time.monotonic()
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
    print(f"Spark is there after {time.monotonic() - began:.1f} s", flush=True)

    records = spark.read.format("headway").option("topic", "flights/#").option("admin", options.admin).load()
    late = flights(records).groupBy("carrier").agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("delay"))
    for row in late.orderBy(f.desc("delay")).limit(5).collect():
        print(f"  {row.carrier}  {row.flights:7,} flights, {row.delay:5.1f} min late on average")
    print(f"the first answer is there after {time.monotonic() - began:.1f} s", flush=True)

    live = spark.readStream.format("headway").option("topic", "flights/#").option("admin", options.admin)
    rows = flights(live.option("maxOffsetsPerTrigger", RECORDS_A_BATCH).load())
    query = (
        rows.writeStream.format("parquet").option("path", str(options.out / "flights"))
        .option("checkpointLocation", str(options.out / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    told = -1
    while query.isActive or (query.lastProgress and query.lastProgress["batchId"] > told):
        progress = query.lastProgress
        if progress and progress["batchId"] > told:
            told = progress["batchId"]
            took_s = progress["durationMs"]["triggerExecution"] / 1000
            print(f"  batch {told}: {progress['numInputRows']:,} records in {took_s:.1f} s", flush=True)
        time.sleep(0.2)
    query.awaitTermination()
    picture = draw(spark.read.parquet(str(options.out / "flights")), options.out)
    print(f"a picture after {time.monotonic() - began:.1f} s: {picture}")
    spark.stop()


def flights(records: DataFrame) -> DataFrame:
    """The JSON of each record, and the carrier that its topic names: flights/JFK/UA."""
    carrier = f.element_at(f.split("topic", "/"), -1).alias("carrier")
    flight = f.from_json(f.col("payload").cast("string"), "left TIMESTAMP, dep_delay INT").alias("flight")
    return records.select(carrier, flight).select("carrier", "flight.*")


def draw(rows: DataFrame, folder: Path) -> Path:
    """Delay by the hour of departure."""
    by_hour = rows.where("left IS NOT NULL").groupBy(f.hour("left").alias("hour"))
    found = sorted((row.hour, row.delay) for row in by_hour.agg(f.avg("dep_delay").alias("delay")).collect())
    figure = go.Figure(go.Bar(x=[hour for hour, _ in found], y=[delay for _, delay in found]))
    figure.update_layout(title="Who leaves late leaves late in the day", xaxis_title="hour of departure",
                         yaxis_title="average delay in minutes", template="plotly_white")  # fmt: skip
    path = folder / "delays.html"
    figure.write_html(path, include_plotlyjs=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
