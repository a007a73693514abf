"""Agreement of the ranks on the writers of a sharded save.

They need no collective: each leaves a note of what it could write (`plan_board`). Rank 0 waits for the notes
of all, and decides who writes what (`shard_plan`); the others wait for its decision. So what they read there
grows with the ranks, and not with their square.

Belongs to the thread of `sharded_writer`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_client.checkpoint.copied_save import CopiedSave, SaveGivenUpError
from rla_client.checkpoint.plan_board import PlanBoard, StoreGoneError
from rla_client.checkpoint.shard_plan import LocalPlan, ShardPiece, SharedPlan, share_of
from rla_client.checkpoint.sharded_save import FIRST_LOOK_S, LOOK_S
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.sharded_checkpoint.files import plan_note_name, save_token
from rla_client.contract.sharded_checkpoint.folder import UNREADABLE
from rla_client.contract.sharded_checkpoint.records import PlanDecision, PlanNote
from rla_client.contract.sharded_checkpoint.retention import remove_unused_layouts

PEERS_WAIT_S: Final = 120.0  # of rank 0 for the notes of the others
LONGER: Final = 1.5  # the others wait for its decision, which names who has not come
CLOSING_WAIT_S: Final = 10.0  # the same, once this process ends
LEFT_OUT_LOOK_S: Final = 1.0  # whether one that is absent is at a later save: a request for each of them
MAX_NAMED: Final = 20  # ranks in a message
MAX_PROBLEM: Final = 1000  # characters of what is told the others; a key of the state may be long
LOOKED_AT: Final = 20  # absent ranks each time, in turn


@dataclass(frozen=True)
class AgreedPlan:
    """What a save of this rank is to be.

    Attributes:
        decision: rank 0's.
        pieces: what this rank writes; none where the decision has a problem.
        shared: who writes what, and the notes of all; on rank 0.
    """

    decision: PlanDecision
    pieces: Sequence[ShardPiece]
    shared: tuple[SharedPlan, list[PlanNote]] | None = None


class PlanAgreement:
    """Brings the ranks of one run to a plan of each save.

    Args:
        board: where they tell each other what they could write.
        folder: of the checkpoints.
        rank: of this process.
        world: number of ranks.
        say_of_folder: called with an error of the folder, which ends nothing.

    Attributes:
        closing: no more saves come, so nobody is waited for long.
    """

    def __init__(
        self, board: PlanBoard, folder: Path, rank: int, world: int, say_of_folder: Callable[[OSError], None]
    ) -> None:
        self.closing = False
        self._board, self._folder, self._rank, self._world = board, folder, rank, world
        self._say_of_folder = say_of_folder
        #: On rank 0: the plans of all ranks, by layout.
        self._plans: dict[str, LocalPlan] = {}
        #: On rank 0: layouts of all ranks, and who writes what of them.
        self._shared: tuple[tuple[str, ...], SharedPlan] | None = None
        #: On another rank: own layout, that of all, what it writes.
        self._share: tuple[str, str, list[ShardPiece]] | None = None
        self._looks = 0  # whether absent ranks are at a later save

    def agree(self, here: Path, job: CopiedSave, own: PlanNote, retention: Retention) -> AgreedPlan:
        """Leave this rank's note, and wait until rank 0 has decided who writes what.

        Args:
            here: folder of the save's parts.
            job: the save.
            own: this rank's note.
            retention: rank 0's, for the others.

        Raises:
            SaveGivenUpError: some ranks will not come, or not soon.
            OSError: the folder or the board takes nothing.
        """
        self._board.describe(self._rank, job.plan)
        write_atomic(here / plan_note_name(self._rank), own.encode(), durable=False)
        self._board.tell(job.parts, own)
        planned = self._learnt(job) if self._rank else self._decided(here, job, own, retention)
        self._board.all_told(job.number)
        return planned

    def _learnt(self, job: CopiedSave) -> AgreedPlan:
        """What rank 0 has decided, on another rank."""
        found: list[AgreedPlan] = []

        def look() -> list[int]:
            decision = PlanDecision.decode(self._board.decision(job.parts))
            if decision.token != job.identity.token:
                raise RemoteProtocolError("a decision on another save")
            if not decision.layout:
                raise SaveGivenUpError(decision.problem)
            found.append(
                AgreedPlan(decision, [] if decision.problem else self._own_share(job.plan, decision))
            )
            return []

        self._await(look, [0], job)
        return found[0]

    def _own_share(self, plan: LocalPlan, decision: PlanDecision) -> list[ShardPiece]:
        """What this rank writes in a save that rank 0 has decided on."""
        if self._share is None or self._share[:2] != (plan.layout, decision.layout):
            pieces = share_of(plan, self._rank, self._board.shares(decision.layout))
            self._share = plan.layout, decision.layout, pieces
        return self._share[2]

    def _decided(self, here: Path, job: CopiedSave, own: PlanNote, retention: Retention) -> AgreedPlan:
        """What is decided on rank 0, and told the others."""
        try:
            notes = self._notes_of_all(job, own)
        except SaveGivenUpError as error:
            with suppress(OSError):  # the others wait a little longer then
                self._board.decide(
                    job.parts, PlanDecision(own.token, "", str(error)[:MAX_PROBLEM]), job.number
                )
            raise
        shared = self._shared_plan(here, tuple(note.layout for note in notes))
        decision = PlanDecision(
            own.token, shared.layout, shared.problem[:MAX_PROBLEM], job.order, job.metrics, retention
        )
        if self._world > 1:
            self._board.share_out(shared.layout, shared.shares)
            self._board.decide(job.parts, decision, job.number)
        return AgreedPlan(decision, shared.pieces[0], (shared, notes))

    def _shared_plan(self, here: Path, layouts: tuple[str, ...]) -> SharedPlan:
        """Who writes what, by the layouts of all ranks."""
        if self._shared is None or self._shared[0] != layouts:
            self._plans = {layout: self._plans[layout] for layout in layouts}
            self._shared = layouts, SharedPlan([self._plans[one] for one in layouts])
            try:
                written = os.stat(here / plan_note_name(self._rank)).st_mtime
                used = {*self._plans, self._shared[1].layout}
                remove_unused_layouts(self._folder, used, written)
            except OSError as error:
                self._say_of_folder(error)
        return self._shared[1]

    def _notes_of_all(self, job: CopiedSave, own: PlanNote) -> list[PlanNote]:
        """By rank, once they are there; the plans that they name are known then."""
        last = () if self._shared is None else self._shared[0]  # others are of saves that were given up since
        self._plans = {one: plan for one, plan in self._plans.items() if one in last}
        self._plans.setdefault(own.layout, job.plan)
        notes = {self._rank: own}

        def look() -> list[int]:
            absent = [rank for rank in range(self._world) if rank not in notes]
            try:  # one that is not there costs one look, however many ranks there are
                for rank, data in zip(absent, self._board.notes(job.parts, absent), strict=False):
                    notes[rank] = self._note(data, rank, own.token)
            except StoreGoneError:
                raise
            except UNREADABLE:
                pass  # not there yet
            return [rank for rank in absent if rank not in notes]

        self._await(look, [rank for rank in range(self._world) if rank], job)
        return [notes[rank] for rank in range(self._world)]

    def _await(self, look: Callable[[], list[int]], absent: list[int], job: CopiedSave) -> None:
        """Look again and again, until no rank is absent.

        Args:
            look: tells which are; what is not there yet may raise one of UNREADABLE.
            absent: those before the first look.
            job: the save.

        Raises:
            SaveGivenUpError: some will not come, or not soon.
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

    def _check_worth(self, absent: list[int], job: CopiedSave, *, look: bool) -> None:
        """Give a save up to which some ranks will not come, or not soon."""
        waited_s, limit_s = time.monotonic() - job.asked, CLOSING_WAIT_S if self.closing else PEERS_WAIT_S
        if waited_s > (limit_s * LONGER if self._rank else limit_s):
            named = ", ".join(map(str, self._still_absent(absent, job)[:MAX_NAMED]))
            raise SaveGivenUpError(
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
                    raise SaveGivenUpError(f"rank {note.rank} has left this save out")

    def _still_absent(self, absent: list[int], job: CopiedSave) -> list[int]:
        """Of these ranks the ones that have not told anything."""
        found = []
        for rank in absent:
            try:
                self._board.note(job.parts, rank)
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

    def tell_left_out(self, job: CopiedSave) -> None:
        """Let nobody wait for this rank's note: its disk may be full, and that of the others not."""
        of = job.identity
        next_one = save_token(of.run, of.epoch, of.name, of.step, -1)  # of no save
        host, number = os.uname().nodename, job.number + 1
        with suppress(OSError):  # the others wait PEERS_WAIT_S then
            self._board.leave_out(
                PlanNote(next_one, self._rank, self._world, number, job.plan.layout, host, {})
            )

    def await_readers(self) -> None:
        """Wait, on rank 0 and not long, until all ranks have what they need of the board."""
        if self._rank == 0:  # whose process may have torch's store
            self._board.await_readers(self._world, CLOSING_WAIT_S)
