"""rla_agent/replicate/pull."""
