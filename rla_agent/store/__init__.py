"""Durable state of the agent, with its settings."""
