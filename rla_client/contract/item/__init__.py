"""Shared rules of items."""
