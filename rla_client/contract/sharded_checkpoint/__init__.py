"""Sharded checkpoints on a disk, as client or agent treat them."""
