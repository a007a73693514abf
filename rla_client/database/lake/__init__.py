"""The lake: Parquet files of ended runs beside the database, for looks at many runs."""
