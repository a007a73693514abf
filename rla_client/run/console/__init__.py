"""The console of a training."""
