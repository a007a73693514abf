"""This process among others: descriptors, locks, forks, signals."""
