"""rla_client/checkpoint."""
