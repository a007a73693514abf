"""The handle of an open run."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.log_row import log, log_samples
from rla_client.manager import ExpManager
from rla_client.run.close import give_up
from rla_client.run.failure import ending
from rla_client.run.record.excluded_sinks import Exclude, Row
from rla_client.stream.clock import TimeStep

if TYPE_CHECKING:
    from typing_extensions import Self

    from rla_client.run.run_data import RunData


class OpenRun(ExpManager):
    """The handle of a run that `init` opened: an `exp_manager` of that run alone, for any thread.

        with rla_client.init("cartpole", config=args) as run:
            run.log({"loss": 0.5}, step=1)

    At the end of a `with` block the run ends: failed where an exception ended it.
    """

    def __init__(self, data: RunData) -> None:
        super().__init__(data)
        self.time_step_holder = data.clock
        self._told = False  # that it has ended
        data.is_held = True
        weakref.finalize(self, give_up, data).atexit = False

    @property
    def id(self) -> str:
        """Its `run_id`; without one, what tells it from all others."""
        opening = None if self.run is None else self.run.opening
        return self.run_id or ("" if opening is None else opening.run)

    @property
    def index(self) -> str:
        """Its index in the table, as `rla ls` and `rla show` have it; empty where nothing is stored."""
        item = self._data.item
        return "" if item is None else item.index.path

    def log(self, values: Mapping[str, Any], step: TimeStep | None = None) -> Row:
        """`rla_client.log` into this run; once it has ended, a warning."""
        if self._has_ended():
            return {}
        with self.active():
            return log(values, step)

    def log_samples(
        self,
        rows: object,
        step: TimeStep | None = None,
        name: str = "train",
        group: object = None,
        *,
        tokens: bool = False,
    ) -> None:
        """`rla_client.log_samples` into this run; once it has ended, a warning."""
        if not self._has_ended():
            with self.active():
                log_samples(rows, step, name, group, tokens=tokens)

    def record_tabular(self, key: str, val: object, exclude: Exclude = None) -> None:
        """`logger.record_tabular` into this run."""
        if self._has_ended():
            return
        with self.active():
            logger.record_tabular(key, val, exclude)

    def dump_tabular(self, step: TimeStep | None = None) -> Row:
        """`logger.dump_tabular` of this run."""
        if self._has_ended():
            return {}
        with self.active():
            return logger.dump_tabular(step)

    def _has_ended(self) -> bool:
        """Whether nothing can be written any more; said once."""
        if self.run is None and not self._told:
            self._told = True
            logging.getLogger("rla_client").warning("%r has ended: what is logged into it is not kept", self)
        return self.run is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self.close(*ending(error))

    def __repr__(self) -> str:
        return f"<run {self.task_table_name}/{self.index}>"
