"""Folder of a rank's sharded saves.

Rank 0's process has the run; the others learn its folder and opening. From then on saves of earlier openings
are fenced off (`fence`). A rank that does not see rank 0's checkpoint folder saves into that of its machine's
part of the run (`run_part`); the master gets both. Two ranks recognize a shared folder by a file with a
random name, since paths, devices and inodes are the same on clones of one machine.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_client.checkpoint.rank_group import RankGroup
from rla_client.checkpoint.sharded_save import CheckpointPlace
from rla_client.contract.agent.machine_name import machine_name
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import FetchError, NoSuchRunError, RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import CHECKPOINT, HYPARAMETER, PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.run.current_logger import warn
from rla_client.run.run_part import part_of_told
from rla_client.stream.fetch import SETTLE_S, settle_parts

if TYPE_CHECKING:
    from rla_client.contract.spool.opening import Opening
    from rla_client.run.configure import RunSetup

WORD_PREFIX: Final = "here-"  # of a file of PARTS_FOLDER, while the ranks meet
SEEN_S: Final = 60.0  # NFS may hide a new file for so long
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Told:
    """Rank 0's message to the others: its run, its machine, the random name in its folder."""

    place: CheckpointPlace
    opening: Opening
    machine: str
    word: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """Where a rank's saves go.

    Attributes:
        word: random name in the folder; rank 0's where it sees that.
        problem: why it has none.
        unsent: why the master does not get the folder, as it must where there are several.
    """

    word: str
    problem: str = ""
    unsent: str = ""


class PlaceMeeting:
    """The meeting in which the ranks of a job learn where their saves go.

    Args:
        ranks: of the job; all make it together.
        folder: checkpoint folder of rank 0's run; None on other ranks, and where nothing is stored.
        opening: of that run; None where it is not open.
        setup: of a rank above 0 that has joined the run; None of one that has not.

    Attributes:
        place: of this rank's saves; None where nothing can be kept.
        problem: why nothing can be saved or loaded, the same on all ranks.
    """

    def __init__(
        self, ranks: RankGroup, folder: Path | None, opening: Opening | None, setup: RunSetup | None
    ) -> None:
        self.ranks, self.problem, self._setup = ranks, "", setup
        self._autostart = setup is None or setup.starts_agent
        told = None
        if folder is not None and opening is not None and ranks.rank == 0:
            told = self._begin(folder, opening)
        told = ranks.from_rank_zero(told)
        self.place: CheckpointPlace | None = None if told is None else told.place
        if told is not None and ranks.world > 1:
            self.place = self._meet(told)

    def _begin(self, folder: Path, opening: Opening) -> Told | None:
        """Fence off earlier openings, on rank 0; None where nothing can be stored."""
        if not _is_resumed(opening):
            # this process may have saved a moment ago, in an earlier opening
            _settle(folder, SETTLE_S, autostart=self._autostart)
        try:
            raise_fence(folder, opening.run, opening.epoch)
            word = _leave_word(folder) if self.ranks.world > 1 else ""
        except (OSError, RlaError) as error:
            warn(f"sharded checkpoints cannot be kept in {folder}: {error}")
            return None
        place = CheckpointPlace(folder, opening.run, opening.epoch)
        return Told(place, opening, machine_name(find_places()), word)

    def _meet(self, told: Told) -> CheckpointPlace:
        """The folder of this rank's saves, with the ranks that share it."""
        folder, answer = (
            self._look(told)
            if self.ranks.rank
            else (told.place.folder, _Answer(told.word, "", _unsent(told.opening)))
        )
        try:
            answers = self.ranks.gather(answer)
            self.problem = listed([one.problem for one in answers])
            if self.problem or all(one.word == told.word for one in answers):
                return replace(told.place, folder=folder)
            above = folder / PARTS_FOLDER
            beside = tuple(rank for rank, one in enumerate(answers) if os.path.lexists(above / one.word))
            place = replace(told.place, folder=folder, beside=beside)
            mine = answer.unsent
            if not mine and self.ranks.rank == beside[0]:
                mine = self._fence_off(place)
            self.problem = listed(self.ranks.gather(mine))  # no file is removed before all ranks have looked
            return place
        finally:
            if self.ranks.rank == 0 or answer.word != told.word:
                with suppress(OSError):
                    os.unlink(folder / PARTS_FOLDER / answer.word)

    def _look(self, told: Told) -> tuple[Path, _Answer]:
        """The folder of this rank's saves, on a rank above 0."""
        shared = told.place.folder
        if _sees(shared, told.word):
            return shared, _Answer(told.word)
        where = f"rank {self.ranks.rank} on {os.uname().nodename}"
        if self._setup is None:
            return shared, _Answer("", (
                f"{where} does not see {shared}, and has no part in the run: open it on all ranks with "
                "log_files_gen(all_ranks=True), or give them a data root that they share"
            ))  # fmt: skip
        try:
            own = part_of_told(told.opening, {"machine": told.machine}, self._setup)
            folder = Path(own.folder(CHECKPOINT))
            with held_folder(own.root, own.folders[CHECKPOINT], create=True):
                pass
            late_s = SEEN_S if os.path.isdir(own.folder(HYPARAMETER)) else 0.0  # rank 0 makes that
            if _sees(folder, told.word, late_s):
                return folder, _Answer(told.word)
            if own is told.opening:
                return shared, _Answer("", f"{where} does not see {shared}")
            unsent = _unsent(own)
            return folder, _Answer(_leave_word(folder), "", unsent and f"{where}: {unsent}")
        except (NoSuchRunError, OSError, RlaError) as error:
            return shared, _Answer("", f"{where} cannot keep its part of the run: {error}")

    def _fence_off(self, place: CheckpointPlace) -> str:
        """As `_begin`, in the folder of another machine; returns the failure."""
        if self.ranks.rank == 0:
            return ""
        _settle(place.folder, autostart=self._autostart)
        try:
            raise_fence(place.folder, place.run, place.epoch)
        except (OSError, RlaError) as error:
            return f"{os.uname().nodename} cannot keep sharded checkpoints in {place.folder}: {error}"
        return ""


def _is_resumed(opening: Opening) -> bool:
    """Whether it continues at a checkpoint, for which `resume_point.prepare` has waited."""
    cut = opening.continues
    return cut is not None and (cut.rows is not None or cut.time_step is not None)


def _settle(folder: Path, wait_s: float = 0.0, *, autostart: bool) -> None:
    """Wait for saves of several machines on the master; the others are about to be abandoned."""
    try:
        settle_parts(folder, wait_s, autostart=autostart)
    except FetchError as error:
        warn(f"{error}; those of earlier openings of the run are abandoned")


def _leave_word(folder: Path) -> str:
    """Leave a file in a checkpoint folder by whose name others recognize it; returns the name.

    Raises:
        OSError: it cannot be written.
    """
    word = f"{WORD_PREFIX}{os.urandom(16).hex()}"
    with held_folder(folder, PARTS_FOLDER, create=True) as above:
        write_atomic(above / word, b"", durable=False)
    return word


def _sees(folder: Path, word: str, wait_s: float = 0.0) -> bool:
    """Whether a random name is in a checkpoint folder, or appears within `wait_s`."""
    until = time.monotonic() + wait_s
    while not os.path.lexists(folder / PARTS_FOLDER / word):
        if time.monotonic() >= until:
            return False
        for path in (folder, folder / PARTS_FOLDER):  # opening a folder on NFS revalidates its cache
            with suppress(OSError):
                os.listdir(path)
        time.sleep(LOOK_S)
    return True


def _unsent(opening: Opening) -> str:
    """Why the master does not get this machine's folders of a run; empty where it does."""
    if opening.master or (opening.replicate and not opening.offline):
        return ""
    return (
        "the ranks have several data roots, and what lies in this one is sent to no master (SEND_LOG_FILE), "
        "so that nobody would ever have all parts of a checkpoint"
    )


def listed(problems: list[str]) -> str:
    """Failures of the ranks, without repeats."""
    return "; ".join(dict.fromkeys(problem for problem in problems if problem))
