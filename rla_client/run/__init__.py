"""rla_client/run."""
