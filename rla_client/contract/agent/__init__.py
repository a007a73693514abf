"""Access of clients to the agent."""
