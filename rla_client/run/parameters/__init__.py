"""Hyper-parameters of a run."""
