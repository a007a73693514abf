"""A record becomes durable without waiting: spool first, then a message that the agent may miss."""
