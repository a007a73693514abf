"""rla_agent/store."""
