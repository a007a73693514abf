"""Hooks in the libraries of a captured program.

In the program the folder of `rla_client` is the package `_rla_capture`: the modules here import each other
and `contract.capture` relatively, and of `rla_client` nothing before the first metric.
"""
