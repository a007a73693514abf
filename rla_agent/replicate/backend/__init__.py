"""rla_agent/replicate/backend."""
