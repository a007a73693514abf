"""Samples of runs."""
