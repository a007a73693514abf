"""Checkpoint files, as client or agent treat them."""
