"""Files or folders on a disk: written atomically, reached safely."""
