"""rla_agent/command."""
