"""Pure decisions: frames to records, states of streams, outputs and runs, the agent's status."""
