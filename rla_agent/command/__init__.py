"""The `rla-agent` command."""
