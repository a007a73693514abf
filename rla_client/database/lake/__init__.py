"""Lake of ended runs in Parquet files.

It lies in the data root and serves queries over many runs.
"""
