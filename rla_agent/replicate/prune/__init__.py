"""Pruning of local files that are on the master."""
