"""Safe file-system access."""
