"""Append-only output files of streams."""
