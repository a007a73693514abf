"""Shared rules of checkpoint files."""
