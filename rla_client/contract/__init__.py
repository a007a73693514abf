"""The contract between client and agent, byte for byte: frames, segments, layout, jobs, paths, locks."""

__version__ = "0.1.0"  # of both packages
