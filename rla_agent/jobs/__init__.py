"""rla_agent/jobs."""
