"""Sampling of episodes."""
