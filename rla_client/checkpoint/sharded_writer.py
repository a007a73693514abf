"""Thread that writes the copied pieces of sharded checkpoints.

Who writes what is agreed before each save (`plan_agreement`).

Files and their order: contract/sharded_checkpoint/files.py. Who wrote its receipt tries to publish; rank 0
looks again until the save is whole, then removes what retention does not hold. Where the ranks have several
data roots, the lowest rank of each does that there, by the rules of rank 0.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_client.checkpoint.copied_save import CopiedSave, SaveGivenUpError
from rla_client.checkpoint.dcp_metadata import make_metadata
from rla_client.checkpoint.plan_agreement import PlanAgreement
from rla_client.checkpoint.plan_board import FolderBoard, PlanBoard
from rla_client.checkpoint.shard_capture import CopyBuffer
from rla_client.checkpoint.shard_file import write_kept, write_shard
from rla_client.checkpoint.shard_plan import (
    PieceKey,
    Placed,
    ShardPiece,
    placed,
)
from rla_client.checkpoint.sharded_save import LOOK_S, CheckpointPlace, ShardedSave
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.atomic_write import fsync_folder, write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    METADATA,
    OWN_FOLDER,
    STAGED_METADATA,
    folder_name,
    rank_file_name,
    receipt_name,
    shard_name,
)
from rla_client.contract.sharded_checkpoint.folder import read_fence
from rla_client.contract.sharded_checkpoint.publish import came_whole, publish
from rla_client.contract.sharded_checkpoint.records import (
    KeptFile,
    PlanNote,
    Receipt,
    SaveIdentity,
)
from rla_client.contract.sharded_checkpoint.retention import (
    remove_overtaken,
    remove_superseded_sharded,
)
from rla_client.stream.rare_warnings import warn_rarely

EXIT_WAIT_S: Final = 300.0  # for what was copied: nobody else has it
WATCH_S: Final = 600.0  # rank 0 looks so long whether a save becomes whole


class ShardedWriter:
    """Writes what was copied of the sharded checkpoints of one run on one rank.

    Args:
        place: where; None: nothing is stored.
        rank: of this process.
        world: number of ranks.
        board: where they tell each other what they could write; None: in the folder, which all of them share.
        free: takes the buffers of what is written.

    Attributes:
        retention: of the checkpoints; rank 0's counts.
        left_out: saves that found no free buffer, or could not be finished.
        writes: own layout, and what this rank writes of it; None before the first save.
        closing: no more saves come.
    """

    def __init__(
        self,
        place: CheckpointPlace | None,
        rank: int,
        world: int,
        board: PlanBoard | None,
        free: queue.Queue[CopyBuffer],
    ) -> None:
        self.retention = Retention()
        self.left_out = 0
        self.writes: tuple[str, frozenset[PieceKey]] | None = None
        self.closing = False
        self._place, self._rank, self._world, self._free = place, rank, world, free
        folder = Path() if place is None else place.folder
        self._agreement = PlanAgreement(
            board or FolderBoard(folder), folder, rank, world, self._say_of_folder
        )
        self._leads = rank == min(() if place is None else place.beside, default=0)
        self._jobs: queue.SimpleQueue[CopiedSave | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._said: dict[str, float] = {}

    def write(self, job: CopiedSave) -> None:
        """Write a copied save, behind those that wait."""
        self._jobs.put(job)
        if self._thread is None:
            import atexit  # noqa: PLC0415 - not at import of the package

            self._thread = threading.Thread(target=self._work, name="rla-shards", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def close(self) -> None:
        """Write what was copied, then stop. Waits for the disk, EXIT_WAIT_S at most."""
        thread, self.closing = self._thread, True
        self._agreement.closing = True
        if thread is not None and self._pid == os.getpid() and thread is not threading.current_thread():
            self._jobs.put(None)
            thread.join(EXIT_WAIT_S)

    def _work(self) -> None:
        watched: CopiedSave | None = None
        while True:
            try:
                job = self._jobs.get(timeout=None if watched is None else LOOK_S)
            except queue.Empty:
                assert watched is not None
                late = time.monotonic() - watched.asked > WATCH_S
                watched = None if self._became_whole(watched) or late else watched
                continue
            if job is None:
                if watched is not None:
                    self._became_whole(watched)  # the last ranks may have come since the last look
                self._agreement.await_readers()
                return
            try:
                self._write(job)
                watched = job if self._leads and not self._became_whole(job) else None
            except Exception as error:  # noqa: BLE001 - the thread goes on with the next one
                self.leave_out(job.save, f"{type(error).__name__}: {error}")
                self._agreement.tell_left_out(job)
            finally:
                self._free.put(job.buffer)

    def _write(self, job: CopiedSave) -> None:
        save, identity = job.save, job.identity
        assert self._place is not None
        try:
            parts = f"{PARTS_FOLDER}/{job.parts}"
            fence = read_fence(self._place.folder)
            if fence is not None and fence.keeps_out(identity):
                raise SaveGivenUpError("a later process continues this run")  # noqa: TRY301 - one way out
            with held_folder(self._place.folder, f"{parts}/{OWN_FOLDER}", create=True):
                pass
            with held_folder(self._place.folder, parts) as here:
                try:
                    self._write_into(here, job)
                except BaseException:
                    self._take_back(here)
                    _remove_if_empty(here / OWN_FOLDER, self._place.folder / parts)
                    raise
        except (SaveGivenUpError, OSError, ValueError, UnsafeNameError) as error:
            self.leave_out(save, str(error))
            self._agreement.tell_left_out(job)
            return
        save.ends()
        with suppress(OSError):  # the next one that looks does it
            publish(self._place.folder, job.parts)

    def _take_back(self, here: Path) -> None:
        """Free the space that this rank's part of a save took which cannot become whole."""
        if not os.path.lexists(here / receipt_name(self._rank)):  # else somebody may be publishing it
            for name in (shard_name(self._rank), rank_file_name(self._rank)):
                with suppress(OSError):
                    os.unlink(here / name)

    def _write_into(self, here: Path, job: CopiedSave) -> None:
        identity = job.identity
        own = PlanNote(
            identity.token, self._rank, self._world, job.number, job.plan.layout, os.uname().nodename,
            _lengths(job.objects),
        )  # fmt: skip
        planned = self._agreement.agree(here, job, own, self.retention)
        decision = planned.decision
        assert self._place is not None
        if self._leads:
            remove_overtaken(self._place.folder, own)
        if self._rank:
            self.retention = decision.keep
        if self._leads and self._place.beside:
            self._apply_retention(job.save.name)  # the master may have an earlier one by now
        if decision.problem:
            raise SaveGivenUpError(decision.problem)
        self.writes = job.plan.layout, frozenset(piece.identity for piece in planned.pieces)
        mine = _placed(planned.pieces, own)
        files = [write_shard(here, shard_name(self._rank), mine, lambda piece: _bytes_of(job, piece))]
        if job.own is not None:
            files.append(write_kept(here, rank_file_name(self._rank), job.own))
        metadata = None
        if planned.shared is not None:
            shared, notes = planned.shared
            everything = [one for note in notes for one in _placed(shared.pieces[note.rank], note)]
            made = write_kept(here, STAGED_METADATA, make_metadata(shared, everything))
            metadata = KeptFile(METADATA, made.size, made.sha256)
        fsync_folder(here)
        whole = SaveIdentity(
            identity.run, identity.epoch, identity.token, identity.name, identity.step, identity.world,
            decision.layout,
        )  # fmt: skip
        receipt = Receipt(
            whole, self._rank, own.host, decision.order, tuple(files), metadata, decision.metrics,
            self._place.beside, decision.keep if self._place.beside else None,
        )  # fmt: skip
        write_atomic(here / receipt_name(self._rank), receipt.encode())

    def _became_whole(self, job: CopiedSave) -> bool:
        """Whether a save is complete by now; then what retention does not hold goes."""
        assert self._place is not None
        folder, name = self._place.folder, job.save.name
        if job.save.problem:  # a full disk perhaps, and one before it may have come whole by now
            self._apply_retention(name)
            return True
        try:
            if not came_whole(folder, job.parts):
                return False
        except OSError as error:
            self._say_of_folder(error)
            return False
        return self._apply_retention(name)

    def _apply_retention(self, name: str) -> bool:
        """Remove what retention does not hold; False where that could not be done."""
        assert self._place is not None
        try:
            remove_superseded_sharded(self._place.folder, name, self._place.run, self.retention)
        except OSError as error:
            self._say_of_folder(error)
            return False
        return True

    def _say_of_folder(self, error: OSError) -> None:
        assert self._place is not None
        warn_rarely(self._said, "retention", "sharded checkpoints in %s: %s", self._place.folder, error)

    def leave_out(self, save: ShardedSave, problem: str) -> None:
        """Say that a save of this rank will not be there, and why."""
        self.left_out += 1
        what = folder_name(save.name, save.step)
        warn_rarely(self._said, problem[:20], "rank %d: %s stays incomplete: %s", self._rank, what, problem)
        save.ends(problem)


def _bytes_of(job: CopiedSave, piece: ShardPiece) -> memoryview | bytes:
    found = job.objects.get(piece.identity) if piece.kind == "bytes" else job.buffer.bytes_of(piece.identity)
    if found is None:
        raise SaveGivenUpError(
            f"the state of another rank has changed, and this one would have to write {piece.key}, too; the "
            "next save is planned anew"
        )
    return found


def _lengths(objects: Mapping[PieceKey, bytes]) -> dict[str, int]:
    return {key.key: len(data) for key, data in objects.items()}


def _placed(pieces: Sequence[ShardPiece], note: PlanNote) -> list[Placed]:
    try:
        return placed(pieces, note.rank, note.lengths)
    except KeyError as error:
        raise SaveGivenUpError(
            f"the state of another rank has changed, and rank {note.rank} did not tell the length of {error}"
        ) from error


def _remove_if_empty(*folders: Path) -> None:
    """Remove folders that nothing was written into, for want of room perhaps."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
