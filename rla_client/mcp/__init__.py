"""Server for assistants (`rla mcp`)."""
