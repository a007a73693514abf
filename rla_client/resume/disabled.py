"""The part of exp_manager for processes that store nothing: RLA_MODE=disabled, ranks above 0.

Every call works, and none writes into the database. Where a run is resumed, ranks above 0 learn from
rank 0 where it goes on (`ranks.await_resumed`): they get its clock and custom data and may load its
checkpoint, and read it only. Random generators stay their own, or all ranks would draw the same.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import NoCheckpointError
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
from rla_client.resume.history import ItemHistory
from rla_client.run.disabled_folders import Nowhere
from rla_client.run.ranks import await_resumed, job_file, join_rank_zero, next_number
from rla_client.run.recording import Logger
from rla_client.run.run import Run, disabled, rank
from rla_client.run.trackers import clear_time

if TYPE_CHECKING:
    from rla_client.config.schema import Config
    from rla_client.run.item import Item


class NowhereRuns(ItemHistory):
    """Opening a run that stores nothing; `ExpManager` does it."""

    def _open_nowhere(self, config: Config, *, all_ranks: bool) -> None:
        meeting = self._meeting()
        self._begin_nowhere(config, meeting, all_ranks=all_ranks)
        if rank() > 0 and not disabled() and self.resume_mode != "never" and self.run_id is not None:
            self._follow_rank_zero(meeting)

    def _meeting(self) -> Path | None:
        """Where rank 0 tells of its next run; None with RLA_MODE=disabled and outside of a job."""
        if disabled():
            return None
        table, _config, root = self._configured()
        return job_file(root, table, next_number(root, table))

    def _begin_nowhere(self, config: Config, meeting: Path | None, *, all_ranks: bool) -> None:
        sinks = tuple(name for name in config.log_used if name != "stdout" or rank() == 0)
        why = "RLA_MODE=disabled" if disabled() else f"rank {rank()}"
        self._item = None
        self._nowhere = Nowhere(self.get_task_table_name(), self.info or "", self.ipaddr, why)
        joins = all_ranks and not disabled()
        if joins:
            self._run = join_rank_zero(config, meeting)
        else:
            to = Logger(self._nowhere.log_dir, sinks, callback=self.log_callback_fn)
            self._run = Run(to, None, config.agent)
        self.record_date = datetime.now()  # noqa: DTZ005 - local, as indices
        logger.set_current(self._run.logger)
        self._bind_nowhere(self._nowhere, joins=joins)

    @staticmethod
    def _bind_nowhere(nowhere: Nowhere, *, joins: bool) -> None:
        from rla_client.media.jobs import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

        def results() -> str:
            return nowhere.item().folder(OTHER_RESULTS)

        bind(RecordingTarget(None, None, logger.warn, nowhere=results, elsewhere=joins))

    def _follow_rank_zero(self, meeting: Path | None) -> None:
        """Go on where rank 0 does, as far as a process can that writes nothing."""
        from rla_client.resume.resume import find_unfinished  # noqa: PLC0415 - rarely needed

        if meeting is not None:
            found = await_resumed(meeting)
            if found is None:
                logger.warn(
                    "rank 0 did not tell where the run goes on, so this rank begins at 0: have rank 0 load "
                    "the checkpoint and broadcast it (docs/clusters.md, Ranks)"
                )
            elif found.item is not None:
                self._see(found.item, found.name, found.time_step)
            return
        table, _config, root = self._configured()
        item = find_unfinished(root, table, self.run_id or "")
        if item is not None:  # no launcher that would let the ranks meet: what is there now
            self._see(item, *_newest(item))

    def _look_on(self, which: str, at: int | None, name: str, *, trust: bool) -> tuple[int, Any]:
        """`resume` of a process that stores nothing: the checkpoint is loaded, the run left as it is."""
        from rla_client.resume.find import find_item, read_run  # noqa: PLC0415 - rarely needed

        table, config, root = self._configured()
        meeting = self._meeting()
        self._end_run("finished", "")
        clear_time()
        self._begin_nowhere(config, meeting, all_ranks=False)
        found = None if meeting is None else await_resumed(meeting)
        if found is not None and found.item is not None:
            item, step = found.item, found.time_step
        else:
            item = find_item(root, table, which)
            step = at if at is not None else _newest(item, name)[1]
        if not self.hyper_param:
            self._take_parameters(read_run(item).hyper_param)
        self._see(item, name, step)
        return (0, None) if step is None else self.load_checkpoint(step, name, trust=trust)

    def _see(self, item: Item, name: str, step: int | None) -> None:
        from rla_client.run.disabled_checkpoints import SeenCheckpoint  # noqa: PLC0415 - rarely needed
        from rla_client.run.state import read_resume_state  # noqa: PLC0415

        folder = Path(item.folder(CHECKPOINT))
        state = {} if step is None else read_resume_state(folder, name, step) or {}
        own = {key: value for key, value in state.items() if key not in {"random", "logger"}}
        self._restore_state(own, step, item)
        if step is not None and self._nowhere is not None:
            self._nowhere.checkpoints.seen = SeenCheckpoint(folder, name, step, _identity(item))


def _identity(item: Item) -> str:
    from rla_client.resume.find import read_run_file  # noqa: PLC0415 - rarely needed

    return str(read_run_file(item).get("run_id") or "")


def _newest(item: Item, name: str = "checkpoint") -> tuple[str, int | None]:
    from rla_client.checkpoint.files import find_checkpoint  # noqa: PLC0415 - rarely needed

    try:
        return name, find_checkpoint(Path(item.folder(CHECKPOINT)), name)[0]
    except NoCheckpointError:
        return name, None
