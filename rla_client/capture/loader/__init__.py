"""Folder for PYTHONPATH with the `sitecustomize` that starts the capture."""
