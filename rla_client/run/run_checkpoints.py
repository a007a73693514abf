"""The checkpoints of the open run.

Names and behaviour are RLA's: `save_checkpoint(model_dict, related_variable)` stores the model as
`<name>_<time-step>.pt` and the related variables with the time-step as custom data. The step waits for
one copy of the tensors; the agent writes the file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, MissingExtraError, NotConfiguredError
from rla_client.contract.layout import CHECKPOINT
from rla_client.run.current_logger import warn
from rla_client.run.state.archive import pack_arrays
from rla_client.run.state.custom_data import split_custom
from rla_client.run.state.random_state import restore_random_state
from rla_client.run.state.resume_state import keep_resume_state
from rla_client.run.state.run_archive import run_name, save_archive
from rla_client.stream.values import whole_number

if TYPE_CHECKING:
    from rla_client.checkpoint.saver import CheckpointSaver
    from rla_client.checkpoint.sharded_save import ShardedSave
    from rla_client.contract.checkpoint.checkpoint_retention import Mode, Retention
    from rla_client.contract.sharded_checkpoint.status import ShardedStatus
    from rla_client.run.saved_run import SavedRun
    from rla_client.run.sharded_run import ShardedRun

CHECKPOINT_NAME = "checkpoint"
TIME_STEP_DATA = "time-step"  # custom data: the clock at the last save_checkpoint


class RunCheckpoints:
    """The checkpoints of the run that `data` has open, plain or sharded."""

    def __init__(self, data: SavedRun) -> None:
        self._data = data
        self.max_to_keep: int | None = None
        self.resume_state: dict[str, Any] = {}  # of the checkpoint that the run was resumed from
        self._saved_before = 0  # order of the last save of an earlier process, or of a forked run
        self._var_prefix: str | None = None
        self._saver: CheckpointSaver | None = None
        self._sharded: ShardedRun | None = None
        self._keeps: list[tuple[str, tuple[Any, ...]]] = []

    def take_rules(self, other: RunCheckpoints) -> None:
        """Take over the retention rules of `other`."""
        self.max_to_keep, self._var_prefix = other.max_to_keep, other._var_prefix
        self._keeps = list(other._keeps)

    def forget(self) -> None:
        """Forget the checkpoints of the run that was open until now."""
        self.resume_state, self._saved_before = {}, 0

    def close(self) -> None:
        """Release the savers of an ended run; its rules stay for the next one."""
        self._close_saver()
        if self._sharded is not None:  # with its run, and not before: all ranks open it together
            self._sharded.saver.close()
            self._sharded = None

    def _close_saver(self) -> None:
        if self._saver is not None:
            self._saver.close()
            self._saver = None

    def new_saver(
        self, max_to_keep: int | None = None, var_prefix: str | None = None, verbose: bool = True
    ) -> None:
        """See `ExpManager.new_saver`."""
        del verbose
        if self._data.setup.dl_framework != "tensorflow" and find_spec("torch") is None:
            raise MissingExtraError("new_saver needs PyTorch: pip install 'rla-agent[torch]'", name="torch")
        self.max_to_keep = None if max_to_keep is None else whole_number(max_to_keep, "max_to_keep")
        self._var_prefix = var_prefix
        self._close_saver()
        if self._data.run is not None and self._data.run.outbox is not None:
            self._open_saver()

    def keep_best(self, metric: str, mode: Mode = "min", k: int = 1) -> None:
        """See `ExpManager.keep_best`."""
        from rla_client.checkpoint.saver import best_rule  # noqa: PLC0415 - not at import of the package

        self._keep("keep_best", *best_rule(metric, mode, k))

    def keep_every(self, n: int) -> None:
        """See `ExpManager.keep_every`."""
        self._keep("keep_every", whole_number(n, "keep_every"))

    def _keep(self, rule: str, *arguments: object) -> None:
        self._keeps = [entry for entry in self._keeps if entry[0] != rule] + [(rule, arguments)]
        if self._saver is not None:
            getattr(self._saver, rule)(*arguments)

    def save_after(self, order: int) -> None:
        """Make checkpoints from now on newer than that of this order, whatever the clock says."""
        self._saved_before = max(self._saved_before, order)
        if self._saver is not None:
            self._saver.come_after(order)

    def _open_saver(self) -> CheckpointSaver | None:
        run, item = self._data.run, self._data.item
        if self._saver is not None or run is None or item is None or run.outbox is None:
            return self._saver
        from rla_client.checkpoint.saver import CheckpointSaver  # noqa: PLC0415 - not at import of the package

        identity = run.opening.run if run.opening else ""
        folder = Path(item.folder(CHECKPOINT))
        self._saver = CheckpointSaver(run.outbox, folder, self.max_to_keep, run=identity)
        self._saver.come_after(self._saved_before)
        for rule, arguments in self._keeps:
            getattr(self._saver, rule)(*arguments)
        return self._saver

    def save(
        self,
        model_dict: object = None,
        related_variable: Mapping[str, Any] | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
    ) -> None:
        """See `ExpManager.save_checkpoint`."""
        if self._data.run is None:
            raise NotConfiguredError("open a run first: exp_manager.log_files_gen()")
        from rla_client.contract.job.checkpoint_job import final_name  # noqa: PLC0415

        step = self._data.clock.get_time()
        final_name(checkpoint_name, int(step))  # refused before it is part of any path
        for key, value in (related_variable or {}).items():
            self._data.custom.add(key, value, mode="replace")
        self._data.custom.values[TIME_STEP_DATA] = step
        saver = self._open_saver()
        if saver is None and self._data.disabled is None:
            return
        kept = None
        if self._data.setup.dl_framework == "tensorflow":
            self._save_tensorflow(model_dict, checkpoint_name, int(step))
        elif self._data.disabled is not None:
            self._data.disabled.save_checkpoint(model_dict, checkpoint_name, int(step))
        elif saver is not None:
            self._data.run.logger.write_scalars()
            plain, parts = split_custom(self._data.custom.values, run_name(self._data))
            arrays = pack_arrays(parts)
            order = saver.next_order()
            written = keep_resume_state(self._data.run, plain, arrays, checkpoint_name, int(step), order)
            kept = plain, arrays, written
            row = self._data.run.logger.last_row
            metrics = dict(_metrics(row))
            saver.save(model_dict, checkpoint_name, int(step), metrics=metrics, order=order)
        save_archive(self._data, kept)

    def _save_tensorflow(self, model_dict: Any, name: str, step: int) -> None:  # noqa: ANN401
        if model_dict is None:
            warn("save_checkpoint() without a model_dict saves no variables of TensorFlow 2")
            return
        from rla_client.checkpoint.tensorflow import save_tensorflow  # noqa: PLC0415

        folder = self._data.folder_of(CHECKPOINT)
        save_tensorflow(model_dict, folder, name, step, self._var_prefix, max_to_keep=self.max_to_keep)

    def load(
        self,
        ckp_index: int | str | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
        model_dict: Mapping[str, Any] | None = None,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """See `ExpManager.load_checkpoint`."""
        try:
            index = None if ckp_index is None else int(ckp_index)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"ckp_index is a time-step, or None for the newest; got {ckp_index!r}"
            ) from None
        saver = self._open_saver()
        if self._data.setup.dl_framework == "tensorflow":
            from rla_client.checkpoint.tensorflow import load_tensorflow  # noqa: PLC0415

            folder = self._data.folder_of(CHECKPOINT)
            return load_tensorflow(folder, checkpoint_name, index, model_dict, self._var_prefix)
        if self._data.disabled is not None:
            return self._data.disabled.load_checkpoint(checkpoint_name, index, trust=trust)
        if saver is not None:
            found = saver.load(checkpoint_name, index, trust=trust)
            self.restore_random_state()
            return found
        from rla_client.checkpoint.listing import find_checkpoint  # noqa: PLC0415
        from rla_client.checkpoint.loading import load_file  # noqa: PLC0415

        where, autostart = Path(self._data.folder_of(CHECKPOINT)), self._data.setup.starts_agent
        step, path = find_checkpoint(where, checkpoint_name, index, autostart=autostart)
        return step, load_file(path, trust=trust)

    def save_sharded(
        self,
        state: Mapping[str, Any],
        name: str = CHECKPOINT_NAME,
        per_rank: object = None,
        metrics: Mapping[str, float] | None = None,
    ) -> ShardedSave:
        """See `ExpManager.save_sharded`."""
        if self._data.run is None:
            raise NotConfiguredError("open a run first: exp_manager.log_files_gen()")
        from rla_client.contract.sharded_checkpoint.files import folder_name  # noqa: PLC0415

        step = int(self._data.clock.get_time())
        folder_name(name, step)  # refused before it is part of any path
        sharded, saver = self._open_sharded(), self._open_saver()
        if saver is None or self._data.disabled is not None:
            return sharded.saver.save(state, name, step, per_rank=per_rank, order=time.time_ns())
        self._data.custom.values[TIME_STEP_DATA] = self._data.clock.get_time()
        self._data.run.logger.write_scalars()
        plain, parts = split_custom(self._data.custom.values, run_name(self._data))
        arrays = pack_arrays(parts)
        order = saver.next_order()
        written = keep_resume_state(self._data.run, plain, arrays, name, step, order)
        told = dict(_metrics(self._data.run.logger.last_row if metrics is None else metrics))
        sharded.saver.writer.retention = saver.retention
        save = sharded.saver.save(state, name, step, per_rank=per_rank, order=order, metrics=told)
        save_archive(self._data, (plain, arrays, written))
        return save

    def next_sharded(self) -> tuple[int, Retention]:
        """The order of the next sharded save, with the rules by which checkpoints stay after it."""
        saver = self._open_saver()
        if saver is None:
            from rla_client.contract.checkpoint.checkpoint_retention import Retention  # noqa: PLC0415

            return time.time_ns(), Retention()
        return saver.next_order(), saver.retention

    def load_sharded(
        self,
        into: dict[str, Any],
        step: int | None = None,
        name: str = CHECKPOINT_NAME,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """See `ExpManager.load_sharded`."""
        if not isinstance(into, dict):
            raise ArgumentError("load_sharded takes a dict, which is filled in place")
        return self._open_sharded().load(into, self._sharded_folder(), name, step, trust=trust)

    def sharded_status(self, name: str | None = None) -> list[ShardedStatus]:
        """See `ExpManager.checkpoint_status`."""
        from rla_client.contract.sharded_checkpoint.status import sharded_status  # noqa: PLC0415

        folder = self._sharded_folder()
        if folder is None and self._sharded is not None and self._sharded.place is not None:
            folder = self._sharded.place.folder
        return [] if folder is None else sharded_status(folder, name)

    def _sharded_folder(self) -> Path | None:
        """The checkpoint folder of the run, where this process has it."""
        return None if self._data.item is None else Path(self._data.item.folder(CHECKPOINT))

    def _open_sharded(self) -> ShardedRun:
        """Open the sharded checkpoints, which all ranks do together, the first time."""
        if self._sharded is None:
            self._sharded = self._make_sharded()
        return self._sharded

    def find_sharded(self, name: str, step: int | None) -> tuple[int, Path]:
        """Time-step and folder of a complete checkpoint of rank 0's run; all ranks call it together.

        Raises:
            NoCheckpointError, FetchError: see `ExpManager.load_sharded`.
        """
        found, path = self._make_sharded().find(self._sharded_folder(), name, step)
        return found.step, path

    def _make_sharded(self) -> ShardedRun:
        """The sharded checkpoints of rank 0's open run; all ranks call it together."""
        from rla_client.run.sharded_run import ShardedRun  # noqa: PLC0415 - not at import of the package

        run = self._data.run
        outbox = None if run is None else run.outbox
        setup = None if self._data.item is None and outbox is None else self._data.setup
        made = ShardedRun(self._sharded_folder(), None if run is None else run.opening, setup)
        if made.place is not None and made.place.beside and outbox is not None:
            _ = (
                outbox.stream_folder
            )  # begins the stream: the agent knows of this part of the run without a row
        return made

    def restore_random_state(self) -> None:
        """Random generators as they were at the checkpoint that the run was resumed from."""
        if "random" in self.resume_state:
            restore_random_state(self.resume_state["random"])


def _metrics(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row, without integers that are too large for a float."""
    for key, value in row.items():
        if isinstance(value, int | float):
            with suppress(OverflowError):
                yield key, float(value)
