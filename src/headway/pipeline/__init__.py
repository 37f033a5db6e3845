"""Headway on Spark: topics in and out of it, views, archives, health, the policy lab."""
