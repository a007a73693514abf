"""Runs of other tools, made into items by `import_logs`."""
