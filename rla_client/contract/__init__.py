"""Contract of client with agent, byte for byte: frames, segments, layout, jobs, paths, locks."""

__version__ = "0.1.0"  # of both packages
