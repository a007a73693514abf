"""Filters over runs (`where=`, `since=`)."""
