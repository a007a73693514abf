"""Sweeps in folders of their own."""

from sweep_lab import lab  # noqa: F401 - a fixture
