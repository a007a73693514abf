"""Contract of client with agent.

It fixes frames, segments, layout, jobs, paths and locks, byte for byte.
"""

__version__ = "0.1.0"  # of both packages
