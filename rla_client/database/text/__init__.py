"""Text for terminals, pipes, files, notebooks."""
