"""Loadable state of a run."""
