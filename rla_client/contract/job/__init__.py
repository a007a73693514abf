"""Jobs for the agent, with the layout of their bytes."""
