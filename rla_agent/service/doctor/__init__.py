"""Checks of `rla-agent doctor`."""
