"""rla_client/media."""
