"""The agent as a process: start and stop, systemd, draining, health."""
