"""Media of a run, rendered by the agent."""
