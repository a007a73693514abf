"""Open outputs of one experiment.

An experiment owns a run of its own (rla_client/run/run.py) and makes its logger the current one. `close`
restores the former logger, clock, prefixes and pending values, so that experiments nest and follow each
other in one process.

`rows` counts the rows of progress.csv since the beginning of the experiment, also over resumes. Snapshots
hold it, and `rewind` restarts the outputs with that number of rows (past_outputs.py).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rla_client import logger as rla_logger
from rla_client.contract.errors import AgentNotRunningError, LaunchError
from rla_client.contract.spool.protocol import FrameKind, TextTarget, pack
from rla_client.launcher import dowel
from rla_client.launcher.dowel.log_outputs import time_lead
from rla_client.launcher.folder_lock import FolderLock
from rla_client.launcher.past_outputs import PastRow, hide_events, past_rows, past_text
from rla_client.launcher.pending_streams import await_end, kind_of
from rla_client.launcher.snapshot.snapshot_saver import SnapshotSaver
from rla_client.run.plain_run import open_plain_run
from rla_client.stream.clock import TimeStepHolder, clock

if TYPE_CHECKING:
    from rla_client.code.run_secrets import Secrets
    from rla_client.run.failure import EndStatus
    from rla_client.run.record.excluded_sinks import Row
    from rla_client.run.run import Run


Opener: TypeAlias = "Callable[[Callable[[Row], None]], Run]"
SINKS = ("stdout", "log", "csv", "tensorboard")
TEXT_NAME = "debug.log"
RESUME_WAIT_S = 30.0  # a starting agent first replays the rest of the spool
REUSE_WAIT_S = 5.0  # a run that only reuses its folder does not depend on the agent
_log = logging.getLogger("rla_client")
_open: list[Outputs] = []


def current_outputs() -> Outputs | None:
    """Outputs of the innermost open experiment; None outside of experiments."""
    return _open[-1] if _open else None


class Outputs:
    """The outputs of one experiment. Opens at once.

    Args:
        log_dir: their folder.
        x_axis: key of the row that is the time-step.
        keep_rows: number of rows of an earlier part to keep; None: all.
        opener: opens the run; its argument is called with each row.
        text_name: file of the text log.
        fresh: the folder is new, so there is no earlier part to look for.
        on_close: called with state and reason before the run is closed.

    Raises:
        LaunchError: this or another process is writing there.
        AgentNotRunningError: `keep_rows` was given, and no agent writes the earlier part.
    """

    def __init__(  # noqa: PLR0913 - how a folder is opened has this many sides
        self,
        log_dir: str | os.PathLike[str],
        x_axis: str,
        keep_rows: int | None = None,
        opener: Opener | None = None,
        text_name: str = TEXT_NAME,
        *,
        fresh: bool = False,
        on_close: Callable[[EndStatus, str], None] | None = None,
    ) -> None:
        self.log_dir = os.path.realpath(log_dir)
        if any(other.log_dir == self.log_dir for other in _open):
            raise LaunchError(f"an experiment of this process is writing into {self.log_dir}")
        self.rows = 0
        self._opener = opener or self._open_plain
        self._text_name = text_name
        self._on_close = on_close
        self._secrets: Secrets | None = None
        self._lead: Callable[[], str] | None = None
        self._former_logger = rla_logger.get_current()
        self._savers: dict[str, SnapshotSaver] = {}
        self._kinds: dict[Path, str | None] = {}
        self._former_time = TimeStepHolder()
        self._former_time.take_over(clock())
        self._lock = FolderLock(self.log_dir)
        try:
            self._run = self._begin(keep_rows, fresh=fresh)
        except BaseException:
            self._lock.release()
            raise
        self._former_tabular = dowel.tabular.swap({}, [])
        self._former_dowel = dowel.logger.swap(([], {}, [], x_axis))
        self._clock = clock()
        self._clock.clear()
        _open.append(self)

    def _begin(self, keep_rows: int | None, *, fresh: bool) -> Run:
        folder = Path(self.log_dir)
        rows: list[PastRow] = []
        text: list[str] = []
        if not fresh and self._is_settled(folder, needed=keep_rows is not None):
            rows = past_rows(folder, keep_rows)
            text = list(past_text(folder / self._text_name))
            hide_events(folder)
        run = self._opener(self._count_row)
        self.rows = len(rows)
        if run.outbox is not None:
            now = time.time()
            for step, stamp, values in rows:  # the text has their tables already
                content = [step, stamp, values, dict.fromkeys(values, ("log",))]
                run.outbox.put(FrameKind.ROW, pack(content), now, 1)
            for piece in text:
                run.outbox.put(FrameKind.TEXT, pack([TextTarget.LOG, piece]), now)
            run.outbox.push()
        rla_logger.set_current(run.logger)
        return run

    def introduce(self, name: str, secrets: Secrets) -> None:
        """Begin texts with the time and `[name]`; hide `secrets` in texts and in the reason of a failure."""
        self._secrets, self._lead = secrets, lambda: f"{time_lead()}[{name}] "
        self._tell_logger()
        dowel.logger.push_prefix(f"[{name}] ")
        dowel.logger.log(f"Logging to {self.log_dir}")

    def _tell_logger(self) -> None:
        self._run.logger.secrets, self._run.logger.lead = self._secrets, self._lead

    def _is_settled(self, folder: Path, *, needed: bool) -> bool:
        try:
            await_end(folder, RESUME_WAIT_S if needed else REUSE_WAIT_S)
        except AgentNotRunningError as error:
            if needed:
                raise
            _log.warning("%s continues without the rows of its earlier part: %s", folder, error)
            return False
        return True

    def _open_plain(self, on_row: Callable[[Row], None]) -> Run:
        return open_plain_run(self.log_dir, SINKS, on_row, None, "", {"log": TEXT_NAME})

    def _count_row(self, _row: Row) -> None:
        self.rows += 1

    def rewind(self, rows: int) -> None:
        """Restart the outputs with their first `rows` rows and continue after them.

        Does nothing if the run is not stored.

        Raises:
            AgentNotRunningError: no agent writes the earlier part.
        """
        if rows == self.rows or self._run.outbox is None:
            return
        self._end_savers()
        self._run.close("finished", "")
        self._run = self._begin(rows, fresh=False)
        self._tell_logger()

    def snapshot_saver(self, folder: Path) -> SnapshotSaver | None:
        """Saver of snapshots in `folder`; None if it is not a folder of this run."""
        outbox, opening = self._run.outbox, self._run.opening
        if folder not in self._kinds:
            self._kinds[folder] = None if opening is None else kind_of(os.path.realpath(folder), opening)
        kind = self._kinds[folder]
        if outbox is None or kind is None:
            return None
        if kind not in self._savers:
            self._savers[kind] = SnapshotSaver(outbox, kind)
        return self._savers[kind]

    def _end_savers(self) -> None:
        for saver in self._savers.values():
            saver.close()
        self._savers.clear()

    def close(self, state: EndStatus, reason: str) -> None:
        """End the run and restore the former logger, also if a step fails.

        Args:
            state: finished, interrupted or failed.
            reason: why.
        """
        if self not in _open:
            return
        _open.remove(self)
        with ExitStack() as steps:  # from the last to the first
            steps.callback(self._put_back)
            steps.callback(dowel.logger.remove_all)
            steps.callback(self._lock.release)
            steps.callback(self._run.close, state, reason)
            steps.callback(self._end_savers)
            if self._on_close is not None:
                self._on_close(state, reason)

    def _put_back(self) -> None:
        rla_logger.set_current(self._former_logger)
        self._clock.take_over(self._former_time)
        dowel.tabular.swap(*self._former_tabular)
        dowel.logger.swap(self._former_dowel)
