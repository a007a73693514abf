"""Process of the replicator."""
