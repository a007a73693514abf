"""Registry of the models that runs were opened for."""

from __future__ import annotations

import weakref
from typing import Any

from rla_client.contract.errors import extra
from rla_client.run_handle import OpenRun

with extra("sb3", "rla_client.integrations.sb3"):
    from stable_baselines3.common.base_class import BaseAlgorithm

models_by_run: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""Run → the model that it was opened for, or the output format of a model."""
runs_by_model: weakref.WeakKeyDictionary[BaseAlgorithm, OpenRun] = weakref.WeakKeyDictionary()
"""Model → handle of its run, which ends with the model."""
