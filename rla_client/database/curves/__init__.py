"""Learning curves of runs."""
