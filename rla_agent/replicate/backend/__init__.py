"""Targets of replication behind one interface."""
