"""Transfers by command or on request."""
