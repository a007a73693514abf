"""The `rla` command."""
