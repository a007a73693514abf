"""Checkpoints of tensors: saved at the cost of a memory copy, loaded without running code from the file."""
