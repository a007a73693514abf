"""Work of `rla-agent run`."""
