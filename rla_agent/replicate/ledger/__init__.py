"""rla_agent/replicate/ledger."""
