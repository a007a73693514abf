"""The replicator's process: find what changed, plan, send, seal."""
