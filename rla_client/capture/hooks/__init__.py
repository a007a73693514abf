"""Hooks in the libraries of a captured program.

In the program, the folder of `rla_client` is the package `_rla_capture`. The modules here import each other
and `contract.capture` relatively, and nothing of `rla_client` before the first metric.
"""
