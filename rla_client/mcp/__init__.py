"""The assistant's server of `rla mcp`."""
