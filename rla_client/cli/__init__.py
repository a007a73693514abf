"""The `rla` command: look at runs, compare, change, and keep databases in order."""
