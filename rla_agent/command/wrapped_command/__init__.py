"""Implementation of `rla-agent run`."""
