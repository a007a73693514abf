"""Samples of a language model in training."""
