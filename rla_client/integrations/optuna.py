"""Optuna: a callback that makes each trial a run.

    study.optimize(objective, n_trials=100, callbacks=[RLACallback()])

- The objective opens no run: each trial becomes a run in a table with the study's name, with its parameters
  in the index and its value (and the values that it reported) as rows.
- The objective opens a run (`rla_client.init`): the run gets the trial's number, parameters and value, and
  ends.
- The script had an open run when it created the callback: each trial is a row of that run, at its number.
"""

from __future__ import annotations

import threading
from typing import Any

from rla_client.adapter import ensure_run, write_row
from rla_client.contract.errors import extra
from rla_client.manager import exp_manager

with extra("optuna", "rla_client.integrations.optuna"):
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

__all__ = ["RLACallback"]


class RLACallback:
    """Records each trial after its end. A pruned trial is a finished run; its row has the state.

    Args:
        task_table_name: table for trials without a run of their own; by default the study's name.
    """

    def __init__(self, task_table_name: str | None = None) -> None:
        self._table = task_table_name
        self._around = exp_manager.run
        self._lock = threading.Lock()  # `n_jobs`

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Record a trial."""
        values = trial.values or []
        row: dict[str, Any] = {"trial": trial.number, "state": trial.state.name}
        names = study.metric_names or (
            ["value"] if len(values) == 1 else [f"value_{i}" for i in range(len(values))]
        )
        row |= dict(zip(names, values, strict=False))
        with self._lock:
            if exp_manager.run is not None and exp_manager.run is self._around:
                row |= {f"params/{name}": value for name, value in trial.params.items()}
                write_row(row, trial.number)
            else:
                self._note(study.study_name, trial, row)

    def _note(self, study: str, trial: FrozenTrial, row: dict[str, Any]) -> None:
        about = {"study": study, "trial": trial.number, **trial.user_attrs}
        ensure_run(self._table or study.replace("/", "-"), {**trial.params, "optuna": about}, trial.params)
        steps = sorted(trial.intermediate_values.items())
        for step, value in steps:
            write_row({"reported": value}, step)
        write_row(row, steps[-1][0] if steps else exp_manager.get_timestep())
        failed = trial.state == TrialState.FAIL
        exp_manager.close(
            "failed" if failed else "finished", f"trial {trial.number} failed" if failed else ""
        )
