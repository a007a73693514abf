"""rla_client/cli."""
