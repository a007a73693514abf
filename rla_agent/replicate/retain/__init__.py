"""What may be removed here once the master has it."""
