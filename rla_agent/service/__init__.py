"""The agent as a process: one for a spool, as a service, its surroundings, its last work."""
