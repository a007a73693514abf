"""The schedulers that sweeps are submitted to."""

from __future__ import annotations

from slurm_lab import slurm_lab  # noqa: F401 - a fixture
from sweep_lab import lab  # noqa: F401 - a fixture
