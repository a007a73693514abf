"""rla_agent/service."""
