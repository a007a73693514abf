"""Decisions without input or output: what records, openings, runs and streams mean."""
