"""Record of a run's program.

It has code, parameters, machine and packages, without secrets.
"""
