"""Sinks: what turns records into the bytes of one output format."""
