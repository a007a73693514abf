"""Commands `rla-agent transfer …`."""
