"""Snapshots of a training."""
