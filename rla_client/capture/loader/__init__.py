"""Folder for PYTHONPATH, whose `sitecustomize` starts the capture."""
