"""torch.distributed.checkpoint: atomic checkpoints of its own calls.

    from torch.distributed.checkpoint import load, save
    from rla_client.integrations.dcp import RLAStorageReader, RLAStorageWriter

    save(state, storage_writer=RLAStorageWriter())       # <name>_<time-step>.dcp of the open run
    load(state, storage_reader=RLAStorageReader())       # the newest whole one

For programs that call these themselves; `exp_manager.save_sharded` waits shorter, and needs no collective.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StoragePrefix

from rla_client.checkpoint.dcp_reader import WholeReader
from rla_client.checkpoint.loading import load_file
from rla_client.checkpoint.pickle_trust import pickle_problem
from rla_client.checkpoint.rank_group import rank_group
from rla_client.checkpoint.sharded_loading import ChosenCheckpoint, find_whole, was_written_here
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.errors import NoCheckpointError, NotConfiguredError
from rla_client.contract.filesystem.atomic_write import fsync_folder, write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    METADATA,
    OWN_FOLDER,
    WHOLE_FILE,
    folder_name,
    parts_name,
    receipt_name,
    save_token,
)
from rla_client.contract.sharded_checkpoint.publish import publish
from rla_client.contract.sharded_checkpoint.records import KeptFile, Receipt, SaveIdentity
from rla_client.contract.sharded_checkpoint.removal import remove
from rla_client.contract.sharded_checkpoint.retention import remove_superseded_sharded
from rla_client.manager import exp_manager
from rla_client.run.current_logger import warn

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
    from torch.distributed.checkpoint.storage import WriteResult
    from torch.futures import Future

_unfinished: dict[tuple[Path, str], str] = {}  # checkpoint folder, series → save that rank 0 began last
_NUMBERED = re.compile(r"(?:.*[_-])?([0-9]{1,18})(?:\.dcp)?")


@dataclass(frozen=True)
class _Told:
    """What rank 0 tells each rank beside its plan."""

    prefix: str
    folder: Path
    save: SaveIdentity
    order: int


@dataclass(frozen=True)
class _Save:
    """What a save must know of the open run, at its time-step."""

    folder: Path
    run: str
    epoch: int
    step: int
    order: int
    retention: Retention


class RLAStorageWriter(FileSystemWriter):
    """Writes a sharded checkpoint of the open run; rank 0 has the run.

    Args:
        name: of the series.
        step: time-step; None takes the number that ends `checkpoint_id` (`step-200`), else the run's clock.
        thread_count: threads that write on each rank.
    """

    def __init__(self, name: str = "checkpoint", step: int | None = None, thread_count: int = 1) -> None:
        super().__init__(os.curdir, thread_count=thread_count)
        self._name, self._step = name, step
        self._asked: int | None = step
        self._told: _Told | None = None
        self._retention = Retention()
        self._sent: _Save | None = None  # by the process that has the run, where another one saves

    def __getstate__(self) -> dict[str, Any]:
        """For the process in which torch's `async_save` may save, which has no run."""
        return {**self.__dict__, "_sent": self._sent or self._save_now()}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Take the time-step from a name such as `step-200`; where it lies is the run's business."""
        super().reset(None)
        if checkpoint_id is not None and self._step is None:
            match = _NUMBERED.fullmatch(os.path.basename(os.fspath(checkpoint_id)))
            self._asked = None if match is None else int(match[1])

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copy the state for `async_save`; the time-step is that of this call."""
        self._asked = self._step_now()
        staged: dict[str, Any] = super().stage(state_dict)
        return staged

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is: rank 0 makes the folder."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Choose the folder, on rank 0.

        Raises:
            NotConfiguredError: no run is open there.
            UnsafeNameError: the name cannot be part of a file name.
        """
        now = self._sent or self._save_now()
        if now is None:
            raise NotConfiguredError("open a run on rank 0 first: exp_manager.log_files_gen()")
        folder, order, self._retention = now.folder, now.order, now.retention
        step = now.step if self._asked is None else self._asked
        token = save_token(now.run, now.epoch, self._name, step, order)
        parts = parts_name(self._name, step, token)
        former = _unfinished.pop((folder, self._name), None)
        if former is not None:  # all ranks are at this save now
            remove(folder, former)
        _unfinished[folder, self._name] = parts
        with held_folder(folder, f"{PARTS_FOLDER}/{parts}/{OWN_FOLDER}", create=True):
            pass
        save = SaveIdentity(now.run, now.epoch, token, self._name, step, len(plans), "torch")
        return [
            dataclasses.replace(plan, storage_data=_Told(f"__{rank}_", folder, save, order))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's part durably, then its receipt.

        Raises:
            NotConfiguredError: this rank does not see rank 0's data root.
        """
        told = self._told = plan.storage_data
        assert isinstance(told, _Told)
        self.path = self._parts(told)
        # rank 0 made it; where each machine has a root, all of them may be called alike
        if not self.path.is_dir():
            raise NotConfiguredError(
                f"rank {self.rank} on {os.uname().nodename} does not see rank 0's folder {self.path}: "
                "RLAStorageWriter needs a data root that all ranks share; use "
                "exp_manager.save_sharded(state), which needs none"
            )
        plain = dataclasses.replace(plan, storage_data=_StoragePrefix(told.prefix))
        try:
            written: Future[list[WriteResult]] = super().write_data(plain, planner)
            written.wait()
        except BaseException:
            self._take_back(told)
            raise
        if self.rank:
            self._write_receipt(told, self.rank, None)
            publish(told.folder, self.path.name)
        return written

    def _take_back(self, told: _Told) -> None:
        """Free the space that this rank's part of a save took which cannot become whole."""
        with suppress(OSError):
            for name in os.listdir(self.path):
                if name.startswith(told.prefix):
                    os.unlink(self.path / name)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write `.metadata`, on rank 0, then its receipt; the checkpoint is whole then.

        Raises:
            NoCheckpointError: a later process continues the run, and has abandoned this save.
        """
        told = self._told
        assert told is not None
        super().finish(metadata, results)
        self._write_receipt(told, 0, _kept(self.path, METADATA))
        final = told.folder / folder_name(told.save.name, told.save.step)
        if publish(told.folder, self.path.name) is None:
            raise NoCheckpointError(f"{final} did not become whole: not all of its parts are there any more")
        self.path = final
        self._asked = self._step
        _unfinished.pop((told.folder, told.save.name), None)
        try:
            remove_superseded_sharded(told.folder, told.save.name, told.save.run, self._retention)
        except OSError as error:
            warn(f"older sharded checkpoints in {told.folder} stay: {error.strerror or error}")

    def _write_receipt(self, told: _Told, rank: int, metadata: KeptFile | None) -> None:
        names = sorted(name for name in os.listdir(self.path) if name.startswith(told.prefix))
        files = tuple(_kept(self.path, name) for name in names)
        fsync_folder(self.path)
        receipt = Receipt(told.save, rank, os.uname().nodename, told.order, files, metadata)
        write_atomic(self.path / receipt_name(rank), receipt.encode())

    def _save_now(self) -> _Save | None:
        """None where no run is open in this process."""
        run, item = exp_manager.run, exp_manager.checkpoint_dir
        if run is None or run.opening is None or item is None:
            return None
        order, retention = exp_manager._data.checkpoints.next_sharded()  # noqa: SLF001 - the manager is ours
        return _Save(Path(item), run.opening.run, run.opening.epoch, self._step_now(), order, retention)

    def _step_now(self) -> int:
        return int(exp_manager.get_timestep()) if self._asked is None else self._asked

    @staticmethod
    def _parts(told: _Told) -> Path:
        save = told.save
        return told.folder / PARTS_FOLDER / parts_name(save.name, save.step, save.token)


class RLAStorageReader(WholeReader):
    """Reads a whole sharded checkpoint; made on all ranks together.

    Args:
        name: of the series.
        step: time-step; None takes the whole checkpoint that was saved last.
        folder: checkpoint folder of another run; by default that of rank 0's run.
        trust: load pickled objects, whoever wrote them; see `load_checkpoint`.

    Raises:
        NoCheckpointError: none is whole, and the message says what is missing of the others; or no run is
            open on rank 0, and no folder is given.
        FetchError: the master has it, and a machine could not get it from there.
    """

    def __init__(
        self,
        name: str = "checkpoint",
        step: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        *,
        trust: bool = False,
    ) -> None:
        if folder is None:
            self.step, path = exp_manager._data.checkpoints.find_sharded(name, step)  # noqa: SLF001 - the manager is ours
        else:
            ranks = rank_group()
            found, autostart = ChosenCheckpoint(0, None), exp_manager._data.setup.starts_agent  # noqa: SLF001 - ours
            if ranks.rank == 0:
                found = find_whole(Path(folder), name, step, autostart=autostart)
            found = ranks.from_rank_zero(found)
            if found.path is None:
                raise NoCheckpointError(found.problem)
            self.step, path = found.step, found.path
        super().__init__(path)
        self._trust = trust

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Forget what was read; which checkpoint it is was chosen before."""
        del checkpoint_id
        super().reset(None)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's part; pickled objects are checked before the planner unpickles them.

        Raises:
            UntrustedCheckpointError: one needs code from the file, and is not this run's own.
        """
        run, whole, path = exp_manager.run, self.read_whole(), Path(self.path)
        own = run is not None and run.opening is not None and run.opening.run == whole.save.run
        own = own and was_written_here(path, whole)
        trust = self._trust or (own and pickle_problem(path / WHOLE_FILE) is None)
        checked: Future[None] = super().read_data(plan, planner if trust else _Checked(planner))
        return checked


class _Checked:
    """A planner that gets no pickled object which needs code."""

    def __init__(self, planner: LoadPlanner) -> None:
        self._planner = planner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._planner, name)

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        load_file(value)
        value.seek(0)
        self._planner.load_bytes(read_item, value)


def _kept(folder: Path, name: str) -> KeptFile:
    digest = hashlib.sha256()
    with open(folder / name, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return KeptFile(name, file.tell(), digest.hexdigest())
