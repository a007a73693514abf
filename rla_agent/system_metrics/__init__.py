"""Samples of the resources of runs."""
