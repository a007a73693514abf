"""Background jobs of streams.

They make checkpoints, snapshots, figures, videos and code backups.
"""
