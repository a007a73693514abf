"""Sweeps in folders of their own, and the schedulers that they are submitted to."""

from __future__ import annotations

from support.slurm_lab import slurm_lab  # noqa: F401 - a fixture
from support.sweep_lab import lab  # noqa: F401 - a fixture
