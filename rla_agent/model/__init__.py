"""rla_agent/model."""
