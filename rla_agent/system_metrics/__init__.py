"""System metrics of runs."""
