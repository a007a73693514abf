"""Runs of stable-baselines3's models.

Each trained model has a run of its own.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rla_client.capture.hooks.state import CapturePart
    from rla_client.integrations.sb3 import RLAOutputFormat


class OpensRuns(Protocol):
    """The part of the session that `ModelRuns` uses."""

    names: dict[str, str]

    def begin_beside(self) -> None:
        """Leave the open run to its writers; the next metric opens another run."""

    def replace_parameters(self, origin: str, values: dict[str, Any]) -> None:
        """Replace the hyper-parameters of a library."""

    def rows(self) -> object | None:
        """Rows of the open run, opened now if there is none; None: nothing is recorded."""


class ModelRuns:
    """Writes the rows that models dump.

    Args:
        session: opens the runs.
    """

    def __init__(self, session: OpensRuns) -> None:
        self._session = session
        self._formats: weakref.WeakKeyDictionary[Any, RLAOutputFormat] = weakref.WeakKeyDictionary()
        self._without: RLAOutputFormat | None = None  # for loggers without a model

    def write(
        self, part: CapturePart, model: Any, values: dict[str, Any], excluded: dict[str, Any], step: int  # noqa: ANN401 - SB3's
    ) -> None:  # fmt: skip
        """Write a row of a model's run; the first row opens the run."""
        output = self._without if model is None else self._formats.get(model)
        if output is None:
            output = self._begin(model)
        if output is None:
            return
        output.write(values, excluded, step)
        part.count("values", len(values))

    def _begin(self, model: Any) -> RLAOutputFormat | None:  # noqa: ANN401 - SB3's
        from rla_client.integrations.sb3 import RLAOutputFormat  # noqa: PLC0415 - only where it is used
        from rla_client.integrations.sb3.model_parameters import model_parameters  # noqa: PLC0415

        session = self._session
        if model is not None:
            if len(self._formats):
                session.begin_beside()
            found = model_parameters(model)
            session.names["environment"] = f"{found['env_id']}-{found['algo']}"
            session.replace_parameters("sb3", found)
        if session.rows() is None:
            return None
        output = RLAOutputFormat()
        output.join()
        if model is None:
            self._without = output
        else:
            self._formats[model] = output
        return output
