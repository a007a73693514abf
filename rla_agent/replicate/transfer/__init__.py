"""Transfers by hand or on request: files fetched from the master, items sent to it."""
