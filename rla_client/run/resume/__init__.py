"""Continuation of earlier runs."""
