"""Which code and which environment a run had, without secrets."""
