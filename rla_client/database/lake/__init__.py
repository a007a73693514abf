"""Lake of ended runs in Parquet files.

It is beside the database, for queries over many runs.
"""
