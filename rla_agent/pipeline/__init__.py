"""From segments to durable files: one volume per file system reads, writes, commits, recovers."""
