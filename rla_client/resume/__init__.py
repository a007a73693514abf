"""rla_client/resume."""
