"""Engines of sweeps.

They are this machine's cores or GPUs, Slurm, and Ray.
"""
