"""The spool, with the protocol of its frames."""
