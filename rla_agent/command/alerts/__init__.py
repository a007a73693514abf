"""Commands `rla-agent alerts …`."""
