"""Ways back to an earlier run."""
