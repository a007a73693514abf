"""Folder tree of a data root."""
