"""Record of a run's program.

The record has code, parameters, machine and packages, without secrets.
"""
