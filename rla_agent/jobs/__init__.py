"""Slow work that streams ask for: checkpoints, snapshots, figures, videos, code."""
