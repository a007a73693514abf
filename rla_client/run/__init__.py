"""Lifecycle of one run in the training process."""
