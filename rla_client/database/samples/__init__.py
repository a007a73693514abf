"""Samples of runs: their index, questions about it, their texts."""
