"""The agent as its clients find, start or ask it."""
