"""What the master has: one SQLite file, with checksums and tombstones."""
