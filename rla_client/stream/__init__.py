"""rla_client/stream."""
