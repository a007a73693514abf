"""Thread that writes the copied pieces of sharded checkpoints.

The ranks need no collective: each leaves a note of what it could write (`plan_board`). The thread of rank 0
waits for the notes of all, and decides who writes what (`shard_plan`); those of the others wait for its
decision. So what they read there grows with the ranks, and not with their square.

Files and their order: contract/sharded_checkpoint/files.py. Who wrote its receipt tries to publish; rank 0
looks again until the save is whole, then removes what retention does not hold. Where the ranks have several
data roots, the lowest rank of each does that there, by the rules of rank 0.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rla_client.checkpoint.dcp_metadata import make_metadata
from rla_client.checkpoint.plan_board import FolderBoard, PlanBoard, StoreGoneError
from rla_client.checkpoint.shard_capture import CopyBuffer
from rla_client.checkpoint.shard_file import write_kept, write_shard
from rla_client.checkpoint.shard_plan import (
    LocalPlan,
    PieceKey,
    Placed,
    ShardPiece,
    SharedPlan,
    placed,
    share_of,
)
from rla_client.checkpoint.sharded_save import FIRST_LOOK_S, LOOK_S, CheckpointPlace, ShardedSave
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.errors import RemoteProtocolError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import fsync_folder, write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    METADATA,
    OWN_FOLDER,
    STAGED_METADATA,
    folder_name,
    parts_name,
    plan_note_name,
    rank_file_name,
    receipt_name,
    save_token,
    shard_name,
)
from rla_client.contract.sharded_checkpoint.folder import UNREADABLE, read_fence
from rla_client.contract.sharded_checkpoint.publish import came_whole, publish
from rla_client.contract.sharded_checkpoint.records import (
    KeptFile,
    PlanDecision,
    PlanNote,
    Receipt,
    SaveIdentity,
)
from rla_client.contract.sharded_checkpoint.retention import (
    remove_overtaken,
    remove_superseded_sharded,
    remove_unused_layouts,
)
from rla_client.stream.rare_warnings import warn_rarely

PEERS_WAIT_S: Final = 120.0  # of rank 0 for the notes of the others
LONGER: Final = 1.5  # the others wait for its decision, which names who has not come
CLOSING_WAIT_S: Final = 10.0  # the same, once this process ends
EXIT_WAIT_S: Final = 300.0  # for what was copied: nobody else has it
LEFT_OUT_LOOK_S: Final = 1.0  # whether one that is absent is at a later save: a request for each of them
MAX_NAMED: Final = 20  # ranks in a message
MAX_PROBLEM: Final = 1000  # characters of what is told the others; a key of the state may be long
LOOKED_AT: Final = 20  # absent ranks each time, in turn
WATCH_S: Final = 600.0  # rank 0 looks so long whether a save becomes whole


class _GivenUpError(Exception):
    """A save of this rank cannot be finished; says why."""


@dataclass(frozen=True)
class _Planned:
    """What a save of this rank is to be.

    Attributes:
        decision: rank 0's.
        pieces: what this rank writes; none where the decision has a problem.
        shared: who writes what, and the notes of all; on rank 0.
    """

    decision: PlanDecision
    pieces: Sequence[ShardPiece]
    shared: tuple[SharedPlan, list[PlanNote]] | None = None


@dataclass(frozen=True)
class Job:
    """A copied save that is to be written."""

    save: ShardedSave
    identity: SaveIdentity  # without its layout, which the plan gives
    plan: LocalPlan
    buffer: CopyBuffer
    objects: Mapping[PieceKey, bytes]
    own: bytes | None
    order: int
    metrics: Mapping[str, float]
    number: int
    asked: float = field(default_factory=time.monotonic)


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
        self._board = board or FolderBoard(Path() if place is None else place.folder)
        self._leads = rank == min(() if place is None else place.beside, default=0)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._plans: dict[str, LocalPlan] = {}  # of all ranks, on rank 0
        self._shared: tuple[tuple[str, ...], SharedPlan] | None = None  # likewise
        self._share: tuple[str, str, list[ShardPiece]] | None = (
            None  # of another rank: own layout, that of all, its
        )
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._looks = 0  # whether absent ranks are at a later save
        self._said: dict[str, float] = {}

    def write(self, job: Job) -> None:
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
        if thread is not None and self._pid == os.getpid() and thread is not threading.current_thread():
            self._jobs.put(None)
            thread.join(EXIT_WAIT_S)

    def _work(self) -> None:
        watched: Job | None = None
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
                if self._rank == 0:  # whose process may have torch's store
                    self._board.await_readers(self._world, CLOSING_WAIT_S)
                return
            try:
                self._write(job)
                watched = job if self._leads and not self._became_whole(job) else None
            except Exception as error:  # noqa: BLE001 - the thread goes on with the next one
                self.leave_out(job.save, f"{type(error).__name__}: {error}")
                self._tell_left_out(job)
            finally:
                self._free.put(job.buffer)

    def _write(self, job: Job) -> None:
        save, identity = job.save, job.identity
        assert self._place is not None
        try:
            parts = f"{PARTS_FOLDER}/{parts_name(save.name, save.step, identity.token)}"
            fence = read_fence(self._place.folder)
            if fence is not None and fence.keeps_out(identity):
                raise _GivenUpError("a later process continues this run")  # noqa: TRY301 - one way out
            with held_folder(self._place.folder, f"{parts}/{OWN_FOLDER}", create=True):
                pass
            with held_folder(self._place.folder, parts) as here:
                try:
                    self._write_into(here, job)
                except BaseException:
                    self._take_back(here)
                    raise
        except (_GivenUpError, OSError, ValueError, UnsafeNameError) as error:
            self.leave_out(save, str(error))
            self._tell_left_out(job)
            return
        save.ends()
        with suppress(OSError):  # the next one that looks does it
            publish(self._place.folder, parts_name(save.name, save.step, identity.token))

    def _tell_left_out(self, job: Job) -> None:
        """Let nobody wait for this rank's note: its disk may be full, and that of the others not."""
        of = job.identity
        next_one = save_token(of.run, of.epoch, of.name, of.step, -1)  # of no save
        host, number = os.uname().nodename, job.number + 1
        with suppress(OSError):  # the others wait PEERS_WAIT_S then
            self._board.leave_out(
                PlanNote(next_one, self._rank, self._world, number, job.plan.layout, host, {})
            )

    def _take_back(self, here: Path) -> None:
        """Free the space that this rank's part of a save took which cannot become whole."""
        if not os.path.lexists(here / receipt_name(self._rank)):  # else somebody may be publishing it
            for name in (shard_name(self._rank), rank_file_name(self._rank)):
                with suppress(OSError):
                    os.unlink(here / name)

    def _write_into(self, here: Path, job: Job) -> None:
        identity = job.identity
        own = PlanNote(
            identity.token, self._rank, self._world, job.number, job.plan.layout, os.uname().nodename,
            _lengths(job.objects),
        )  # fmt: skip
        planned = self._planned_with_others(here, job, own)
        decision = planned.decision
        assert self._place is not None
        if self._leads:
            remove_overtaken(self._place.folder, own)
        if self._rank:
            self.retention = decision.keep
        if self._leads and self._place.beside:
            self._apply_retention(job.save.name)  # the master may have an earlier one by now
        if decision.problem:
            raise _GivenUpError(decision.problem)
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

    def _planned_with_others(self, here: Path, job: Job, own: PlanNote) -> _Planned:
        """What this rank writes, once all have left their notes and rank 0 has decided."""
        self._board.describe(self._rank, job.plan)
        write_atomic(here / plan_note_name(self._rank), own.encode(), durable=False)
        parts = parts_name(job.save.name, job.save.step, own.token)
        self._board.tell(parts, own)
        planned = self._learnt(parts, job) if self._rank else self._decided(here, parts, job, own)
        self._board.all_told(job.number)
        return planned

    def _learnt(self, parts: str, job: Job) -> _Planned:
        """What rank 0 has decided, on another rank."""
        found: list[_Planned] = []

        def look() -> list[int]:
            decision = PlanDecision.decode(self._board.decision(parts))
            if decision.token != job.identity.token:
                raise RemoteProtocolError("a decision on another save")
            if not decision.layout:
                raise _GivenUpError(decision.problem)
            found.append(_Planned(decision, [] if decision.problem else self._own_share(job.plan, decision)))
            return []

        self._await(look, [0], job)
        return found[0]

    def _own_share(self, plan: LocalPlan, decision: PlanDecision) -> list[ShardPiece]:
        """What this rank writes in a save that rank 0 has decided on."""
        if self._share is None or self._share[:2] != (plan.layout, decision.layout):
            pieces = share_of(plan, self._rank, self._board.shares(decision.layout))
            self._share = plan.layout, decision.layout, pieces
        return self._share[2]

    def _decided(self, here: Path, parts: str, job: Job, own: PlanNote) -> _Planned:
        """What is decided on rank 0, and told the others."""
        try:
            notes = self._notes_of_all(parts, job, own)
        except _GivenUpError as error:
            with suppress(OSError):  # the others wait a little longer then
                self._board.decide(parts, PlanDecision(own.token, "", str(error)[:MAX_PROBLEM]), job.number)
            raise
        shared = self._shared_plan(here, tuple(note.layout for note in notes))
        decision = PlanDecision(
            own.token, shared.layout, shared.problem[:MAX_PROBLEM], job.order, job.metrics, self.retention
        )
        if self._world > 1:
            self._board.share_out(shared.layout, shared.shares)
            self._board.decide(parts, decision, job.number)
        return _Planned(decision, shared.pieces[0], (shared, notes))

    def _shared_plan(self, here: Path, layouts: tuple[str, ...]) -> SharedPlan:
        """Who writes what, by the layouts of all ranks."""
        if self._shared is None or self._shared[0] != layouts:
            assert self._place is not None
            self._plans = {layout: self._plans[layout] for layout in layouts}
            self._shared = layouts, SharedPlan([self._plans[one] for one in layouts])
            try:
                written = os.stat(here / plan_note_name(self._rank)).st_mtime
                used = {*self._plans, self._shared[1].layout}
                remove_unused_layouts(self._place.folder, used, written)
            except OSError as error:
                self._say_of_folder(error)
        return self._shared[1]

    def _notes_of_all(self, parts: str, job: Job, own: PlanNote) -> list[PlanNote]:
        """By rank, once they are there; the plans that they name are known then."""
        last = () if self._shared is None else self._shared[0]  # others are of saves that were given up since
        self._plans = {one: plan for one, plan in self._plans.items() if one in last}
        self._plans.setdefault(own.layout, job.plan)
        notes = {self._rank: own}

        def look() -> list[int]:
            absent = [rank for rank in range(self._world) if rank not in notes]
            try:  # one that is not there costs one look, however many ranks there are
                for rank, data in zip(absent, self._board.notes(parts, absent), strict=False):
                    notes[rank] = self._note(data, rank, own.token)
            except StoreGoneError:
                raise
            except UNREADABLE:
                pass  # not there yet
            return [rank for rank in absent if rank not in notes]

        self._await(look, [rank for rank in range(self._world) if rank], job)
        return [notes[rank] for rank in range(self._world)]

    def _await(self, look: Callable[[], list[int]], absent: list[int], job: Job) -> None:
        """Look again and again, until no rank is absent.

        Args:
            look: tells which are; what is not there yet may raise one of UNREADABLE.
            absent: those before the first look.
            job: the save.

        Raises:
            _GivenUpError: some will not come, or not soon.
        """
        pause, due = FIRST_LOOK_S, time.monotonic() + LEFT_OUT_LOOK_S
        while True:
            try:
                absent = look()
            except StoreGoneError:
                raise
            except UNREADABLE:
                pass
            if not absent:
                return
            asks = time.monotonic() > due
            self._check_worth(absent, job, look=asks)
            due = time.monotonic() + LEFT_OUT_LOOK_S if asks else due
            time.sleep(pause)
            pause = min(LOOK_S, 2 * pause)

    def _check_worth(self, absent: list[int], job: Job, *, look: bool) -> None:
        """Give a save up to which some ranks will not come, or not soon."""
        waited_s, limit_s = time.monotonic() - job.asked, CLOSING_WAIT_S if self.closing else PEERS_WAIT_S
        if waited_s > (limit_s * LONGER if self._rank else limit_s):
            named = ", ".join(map(str, self._still_absent(absent, job)[:MAX_NAMED]))
            raise _GivenUpError(
                f"ranks {named} have not come to this save within {waited_s:.0f} s" if named
                else f"the ranks have not agreed on who writes what within {waited_s:.0f} s"
            )  # fmt: skip
        first = self._looks * LOOKED_AT % len(absent)
        self._looks += look
        asked = (absent[first:] + absent[:first])[:LOOKED_AT]
        for data in self._board.notes_of(asked) if look else ():
            with suppress(RemoteProtocolError):
                note = PlanNote.decode(data)
                if note.number > job.number and note.token != job.identity.token:
                    raise _GivenUpError(f"rank {note.rank} has left this save out")

    def _still_absent(self, absent: list[int], job: Job) -> list[int]:
        """Of these ranks the ones that have not told anything."""
        parts, found = parts_name(job.save.name, job.save.step, job.identity.token), []
        for rank in absent:
            try:
                self._board.note(parts, rank)
            except UNREADABLE:
                found.append(rank)
        return found

    def _note(self, data: bytes, rank: int, token: str) -> PlanNote:
        """The note of another rank, whose plan is known then.

        Raises:
            OSError, RemoteProtocolError: it is not there yet.
        """
        note = PlanNote.decode(data)
        if (note.token, note.rank, note.world) != (token, rank, self._world):
            raise RemoteProtocolError("a note of another save")
        if note.layout not in self._plans:
            data = self._board.description(rank, note.layout)
            self._plans[note.layout] = LocalPlan.decode(data, note.layout)
        return note

    def _became_whole(self, job: Job) -> bool:
        """Whether a save is complete by now; then what retention does not hold goes."""
        assert self._place is not None
        folder, name = self._place.folder, job.save.name
        if job.save.problem:  # a full disk perhaps, and one before it may have come whole by now
            self._apply_retention(name)
            return True
        try:
            if not came_whole(folder, parts_name(name, job.save.step, job.identity.token)):
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


def _bytes_of(job: Job, piece: ShardPiece) -> memoryview | bytes:
    found = job.objects.get(piece.identity) if piece.kind == "bytes" else job.buffer.bytes_of(piece.identity)
    if found is None:
        raise _GivenUpError(
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
        raise _GivenUpError(
            f"the state of another rank has changed, and rank {note.rank} did not tell the length of {error}"
        ) from error
