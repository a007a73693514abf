"""Shared rules of sharded checkpoints."""
