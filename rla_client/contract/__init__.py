"""rla_client/contract."""
