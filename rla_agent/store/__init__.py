"""What the agent keeps for itself: its database, its lock, configurations as last read."""
