"""Text output for a database."""
