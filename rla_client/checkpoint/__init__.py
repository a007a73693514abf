"""Checkpoints of tensors.

Saving costs the training one memory copy; loading runs no code from the file.
"""
