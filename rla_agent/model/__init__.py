"""Pure decisions of the agent."""
