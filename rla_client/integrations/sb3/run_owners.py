"""Runs with the model that each was opened for."""

from __future__ import annotations

import weakref
from typing import Any

from rla_client.contract.errors import extra
from rla_client.run_handle import OpenRun

with extra("sb3", "rla_client.integrations.sb3"):
    from stable_baselines3.common.base_class import BaseAlgorithm

models_by_run: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""By run: the model that it was opened for, or what writes for one."""
runs_by_model: weakref.WeakKeyDictionary[BaseAlgorithm, OpenRun] = weakref.WeakKeyDictionary()
"""A run ends with its model."""
