"""A Slurm of the tests' own."""

from support.slurm_lab import slurm_lab  # noqa: F401 - a fixture
