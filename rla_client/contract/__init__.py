"""What client and agent must agree on, byte for byte: frames, segments, layout, jobs, paths, locks."""
