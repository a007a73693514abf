"""rla_agent/replicate/worker."""
