"""Engines of sweeps: this machine's cores or GPUs, Slurm, Ray."""
