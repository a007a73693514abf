"""The agent as a process: lock, start, stop, systemd, doctor, drain."""
