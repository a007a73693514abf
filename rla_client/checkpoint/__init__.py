"""Tensors to disk at the cost of a memory copy; loading them again, safely."""
