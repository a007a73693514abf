"""Process control of the agent."""
