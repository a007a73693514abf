"""A sweep in a folder of its own."""

from support.sweep_lab import lab  # noqa: F401 - a fixture
