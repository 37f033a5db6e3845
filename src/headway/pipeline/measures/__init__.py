"""Measures of health: each a plain function from DataFrames of the lake to a DataFrame, one per file.

Rules:
- Rows must be there once (``lake.each_once``); their order, and the files they came in, play no part.
- Nothing here asks for a DataFrame's columns or rows: pipelines are defined before there are any.
"""
