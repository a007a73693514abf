"""rla_client/config."""
