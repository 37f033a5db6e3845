"""Recorded topics as a Spark source: ``spark.read.format("headway")``, ``spark.readStream`` likewise."""
