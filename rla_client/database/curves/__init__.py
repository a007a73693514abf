"""The rows of runs: tables, columns, points."""
