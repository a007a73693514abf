"""rla_client/code."""
