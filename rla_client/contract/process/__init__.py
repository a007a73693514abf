"""Operating-system interface of this process."""
