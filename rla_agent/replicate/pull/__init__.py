"""From the master to here: transfer, follow, fetch, verify."""
