"""rla_agent/outputs."""
