"""Temporary item of a run that stores nothing.

Scripts put files of their own below `exp_manager.log_dir` and its siblings: these are folders of a private
temporary item, made at first use and removed when the process ends (a killed process leaves it to the
system's cleanup of temporary files). `save_checkpoint` stores the newest content of each name in an unlinked
temporary file, so that a later `load_checkpoint()` works as usual, and so that it is freed with the process,
also with one that torchrun kills. Beyond MAX_KEPT_BYTES, and where the disk has no room, nothing is stored,
with a warning at the save. No copy is made of checkpoints that rank 0 saves under the same name where this
process sees them: it loads those. A rank above 0 of a resumed run also reads the checkpoint that rank 0
continued from; it never writes there.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError, NoCheckpointError
from rla_client.contract.layout import CHECKPOINT, LOG
from rla_client.contract.process.descriptors import OwnFile
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders, create_item

DISABLED_PREFIX = "rla-disabled-"
MAX_KEPT_BYTES = 512 << 20  # eight ranks must not fill the disk for temporary files
RANK_ZERO_WAIT_S = 60.0  # for rank 0, or its agent, to write a checkpoint that this rank loads
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """The checkpoint of another process's run that this one continues from."""

    folder: Path
    name: str
    time_step: int
    run: str = ""


@dataclass(frozen=True, slots=True)
class RankZeroFolder:
    """Folder of rank 0's checkpoints, with its run."""

    folder: Path
    run: str


class TemporaryItem:
    """The temporary item of one run, with its stored checkpoints.

    Args:
        table: of the run.
        info: of its index.
        address: of its index.
        why: the reason for storing nothing, for messages.
        rank_zero: gives the folder of rank 0's checkpoints, where this process sees it; else None.
        autostart: start an agent where one has to fetch such a checkpoint and none runs.
    """

    def __init__(
        self,
        table: str,
        info: str,
        address: str,
        why: str = "this mode",
        rank_zero: Callable[[], RankZeroFolder | None] = lambda: None,
        *,
        autostart: bool = True,
    ) -> None:
        self.seen: SeenCheckpoint | None = None
        self._names = table, info, address
        self._why = why
        self._rank_zero, self._autostart = rank_zero, autostart
        self._made: tuple[int, ItemFolders] | None = None
        self._kept: dict[str, tuple[int, OwnFile | str]] = {}  # or why it is not there
        self._warned: set[str] = set()  # names with a checkpoint that was not stored
        self._left: dict[str, int] = {}  # name → time-step of the last save that was left to rank 0

    def __del__(self) -> None:
        for _step, kept in self._kept.values():
            _close(kept)

    def item(self) -> ItemFolders:
        """The item, its folders made; a forked process gets one of its own.

        Raises:
            ArgumentError: the folder for temporary files cannot be written.
        """
        pid = os.getpid()
        if self._made is None or self._made[0] != pid:
            import tempfile  # noqa: PLC0415 - not at import of the package

            try:
                root = tempfile.mkdtemp(prefix=DISABLED_PREFIX)
            except OSError as error:
                raise ArgumentError(
                    f"no temporary folder for a run that stores nothing: {error}; set TMPDIR to one"
                ) from error
            atexit.register(_remove_folder, root, pid)
            self._made = pid, create_item(root, *self._names)
        return self._made[1]

    def log_dir(self) -> str:
        """The item's folder for logs."""
        return self.item().folder(LOG)

    def save_checkpoint(self, content: object, name: str, time_step: int) -> None:
        """Store the content, replacing the former one of this name.

        Raises:
            ArgumentError: it cannot be pickled.
        """
        from rla_client.checkpoint.blob_file import has_room  # noqa: PLC0415 - rarely needed
        from rla_client.checkpoint.direct_write import NotWrittenError, write_checkpoint  # noqa: PLC0415 - rarely needed
        from rla_client.checkpoint.pickling import capture  # noqa: PLC0415
        from rla_client.contract.checkpoint.stamp import Stamp  # noqa: PLC0415

        if self._is_rank_zeros(name):
            self._left[name] = time_step
            if (former := self._kept.pop(name, None)) is not None:
                _close(former[1])
            return
        captured = capture(content)
        size = len(captured.skeleton) + sum(captured.sizes)
        folder = Path(self.item().folder(CHECKPOINT))
        former = self._kept.get(name)
        if size > MAX_KEPT_BYTES or not has_room(folder):
            what = f"over {MAX_KEPT_BYTES >> 20} MiB" if size > MAX_KEPT_BYTES else "and there was no room"
            self._kept[name] = time_step, f"it was {what}"
            self._say_not_kept(name, time_step, what)
        else:
            path = folder / f"kept-{os.urandom(8).hex()}.pt"
            stamp = Stamp(os.urandom(8).hex(), 0, "", name, time_step, {})
            try:
                write_checkpoint(content, path, stamp)
                self._kept[name] = time_step, OwnFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                os.unlink(path)
            except (NotWrittenError, OSError) as error:
                self._kept[name] = time_step, str(error)
                self._say_not_kept(name, time_step, str(error))
        if former is not None:
            _close(former[1])

    def _is_rank_zeros(self, name: str) -> bool:
        """Whether rank 0 saves under this name, where this process can load it."""
        from rla_client.checkpoint.listing import list_checkpoints  # noqa: PLC0415 - rarely needed

        place = self._rank_zero()
        return place is not None and bool(list_checkpoints(place.folder, name))

    def _say_not_kept(self, name: str, time_step: int, why: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            warn(
                f"{name} of time-step {time_step} is not kept for a load_checkpoint() of this process: {why}"
            )

    def _load_rank_zeros(self, name: str, index: int, *, trust: bool) -> tuple[int, Any] | None:
        """A checkpoint that rank 0 has saved, or is about to save; None where it does not appear."""
        from rla_client.checkpoint.listing import find_checkpoint  # noqa: PLC0415 - rarely needed
        from rla_client.checkpoint.loading import load_file  # noqa: PLC0415 - rarely needed

        until = time.monotonic() + RANK_ZERO_WAIT_S
        while (place := self._rank_zero()) is not None:
            try:
                step, path = find_checkpoint(place.folder, name, index, autostart=self._autostart)
            except NoCheckpointError:
                if time.monotonic() > until:
                    return None
                time.sleep(LOOK_S)
            else:
                return step, load_file(path, trust=trust, run=place.run)
        return None

    def load_checkpoint(self, name: str, index: int | None, *, trust: bool = False) -> tuple[int, Any]:
        """The last stored checkpoint of a name, else the one that the run continued from.

        Args:
            name: the series.
            index: a time-step.
            trust: see `ExpManager.load_checkpoint`.

        Raises:
            NoCheckpointError: neither is the requested one.
            UntrustedCheckpointError: see there.
        """
        from rla_client.checkpoint.listing import find_checkpoint  # noqa: PLC0415 - rarely needed
        from rla_client.checkpoint.loading import load_file  # noqa: PLC0415 - rarely needed

        left = self._left.get(name)
        if left is not None and index in {None, left}:
            loaded = self._load_rank_zeros(name, left, trust=trust)
            if loaded is not None:
                return loaded
        step, kept = self._kept.get(name, (None, None))
        if step is not None and index in {None, step} and isinstance(kept, OwnFile):
            try:
                return step, load_file(Path(f"/proc/self/fd/{kept.number}"), trust=True)
            except OSError:
                kept = "its descriptor was closed by the program"
        seen = self.seen
        asked = seen is not None and (index == seen.time_step or (index is None and step is None))
        if seen is not None and seen.name == name and asked:
            at = seen.time_step
            found, path = find_checkpoint(seen.folder, name, at, autostart=self._autostart)
            return found, load_file(path, trust=trust, run=seen.run)
        wanted = f"{name!r}" if index is None else f"{name!r} at time-step {index}"
        there = "none was saved" if step is None else f"the last one is of time-step {step}"
        if left is not None:
            there = f"the last one, of time-step {left}, was left to rank 0, which has none (any more)"
        if isinstance(kept, str):
            there += f" and was not kept ({kept})"
        raise NoCheckpointError(
            f"no checkpoint {wanted}: {self._why} stores nothing; a process gets back what it saved last "
            f"itself, and {there}"
        )


def _close(kept: OwnFile | str) -> None:
    if isinstance(kept, OwnFile):
        kept.close()


def _remove_folder(root: str, pid: int) -> None:
    if os.getpid() == pid:
        import shutil  # noqa: PLC0415 - not at import of the package

        shutil.rmtree(root, ignore_errors=True)
