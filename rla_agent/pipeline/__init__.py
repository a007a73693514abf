"""rla_agent/pipeline."""
