"""What is recorded of topics as Spark reads it: ``spark.read.format("headway")``, ``spark.readStream`` likewise."""
