"""Back to an earlier run: find it, load it, fork it, or continue it from a checkpoint."""
