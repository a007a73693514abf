"""Commands `rla-agent replicate …`."""
