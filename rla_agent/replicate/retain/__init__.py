"""rla_agent/replicate/retain."""
