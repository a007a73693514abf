"""Atomic changes of a database."""
