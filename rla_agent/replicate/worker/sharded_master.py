"""Publication of several machines' sharded checkpoints on the master.

Each machine's agent sends its part of a save into `.rla-parts/<name>_<step>.<token>/` there. The following
steps depend on the receipts alone, as in one folder (`sharded_checkpoint.publish`): any agent whose part is
there may take them, repeatedly, killed at any step, and several at once.

1. Receipts of all ranks are there, they agree, and the files have the sizes in them.
2. The folder takes its final name. From here on nobody adds or removes files in it.
3. Everything is checked again under that name; rank 0's `.metadata` takes its name.
4. `whole.json` is written: **from here on the checkpoint is complete** for every reader.

Of two publishers one renames first, and the other then continues with the next step; both write the same
bytes. Since a thousand machines would read a thousand receipts each, rank 0's machine goes first: the others
only check for the final name while a save is young, and stand by for a while after the last receipt
(`stand_by_s`). There is no lock, so an older save of that name is put away by one agent alone, that of rank
0's machine: it is moved into `.rla-parts/` and then deleted. A save that the fence excludes, and one that is
older than the save with the name, lose their name at once and are then deleted.

On this machine the save then takes its name, too (`finish_on_master`), as a checkpoint whose other files, and
`whole.json`, are on the master. Checkpoints that retention does not hold any longer are removed: the
training, which else does that, may have ended. This runs on a sender's thread.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from rla_agent.replicate.backend.errors import (
    ConflictError,
    LinkError,
    MissingError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.remote_stat import Probe, RemoteStat, StatWithParts
from rla_agent.replicate.backend.session import TargetSession, listing_or_empty
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.worker.sharded_master_step import MasterStep, OnMaster, next_step
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint import folder as sharded_folder
from rla_client.contract.sharded_checkpoint import removal as sharded_removal
from rla_client.contract.sharded_checkpoint import step as sharded_step
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.files import (
    FENCE_FILE,
    FOLDER_ENDING,
    METADATA,
    OWN_FOLDER,
    STAGED_METADATA,
    WHOLE_NAME,
    folder_name,
    parse_parts_name,
    receipt_name,
    receipt_rank,
)
from rla_client.contract.sharded_checkpoint.finish import finish_on_master
from rla_client.contract.sharded_checkpoint.folder import read_fence
from rla_client.contract.sharded_checkpoint.records import (
    MAX_RECEIPT_BYTES,
    MAX_WHOLE_BYTES,
    Fence,
    Receipt,
    Whole,
)
from rla_client.contract.sharded_checkpoint.removal import REPLACED_PREFIX
from rla_client.contract.sharded_checkpoint.retention import remove_superseded_late
from rla_client.contract.sharded_checkpoint.step import NO_CHECKPOINT, whole_of

MAX_STEPS: Final = 12  # steps of one check: six suffice, others may interfere
MAX_RANKS_NAMED: Final = 20
READ_AT_ONCE: Final = 64  # receipts
STAND_BY_S: Final = 30.0  # after the last receipt; the highest rank's machine stands by twice as long
YOUNG_S: Final = 30.0  # age of a save; from then on machines other than rank 0's check its parts, too
LATE_NS: Final = 60 * 10**9  # a later opening may continue without the ranks that are missing by then
AHEAD_NS: Final = 86400 * 10**9  # no clock is wrong by more; a fence further in the future is invalid
_OWN: Final = os.fsencode(OWN_FOLDER)
_MAKING: Final = os.fsencode(PARTS_FOLDER)
_WHOLE: Final = os.fsencode(WHOLE_NAME)
_TEMP: Final = b".rla-tmp-whole-"
_GOING: Final = os.fsencode(REPLACED_PREFIX)
_Listing: TypeAlias = "list[tuple[bytes, RemoteStat]]"
NO_RENAME: Final = "this kind of master cannot rename folders, so the save stays in parts; use sftp or folder"


@dataclass(frozen=True, slots=True)
class PartLook:
    """A save to be checked, of which this machine's part is completely on the master.

    Attributes:
        folder: the run's checkpoint folder here.
        item: the same below the data root, and on the master.
        parts: name of the save's folder in PARTS_FOLDER.
        target: the master, as notes name it.
        replaces: an older checkpoint may be put away, since nobody else on this machine does that now.
        stands_by: the machine of rank 0 has to publish, unless it does not for a while.
    """

    folder: Path
    item: bytes
    parts: str
    target: str
    replaces: bool = True
    stands_by: bool = False


@dataclass(frozen=True, slots=True)
class PartFound:
    """Result of a check.

    Attributes:
        look: the check.
        waits: for what the save waits, in words; empty: for nothing any more.
        lost: this machine's part is not there.
    """

    look: PartLook
    waits: str = ""
    lost: bool = False


def look_all(session: TargetSession, looks: Sequence[PartLook], results: list[PartFound]) -> None:
    """Take all steps that are possible for saves, there and here; adds one result for each.

    Raises:
        LinkError: the session broke; saves without a result are checked again.
    """
    for one in looks:
        try:
            results.append(_Publication(session, one).go_on())
        except LinkError:
            raise
        except TargetError as error:
            results.append(PartFound(one, str(error)))
        except OSError as error:
            results.append(PartFound(one, f"{one.folder}: {error.strerror or error}"))


class _Publication:
    """One save, during one check."""

    def __init__(self, session: TargetSession, look: PartLook) -> None:
        self._session, self._look, self._run = session, look, ""
        parsed = parse_parts_name(look.parts)
        assert parsed is not None, look.parts
        self._name, step, self._token = parsed
        self._what = folder_name(self._name, step).removesuffix(FOLDER_ENDING)
        self._above = look.item + b"/" + _MAKING
        self._making = self._above + b"/" + os.fsencode(look.parts)
        self._final = look.item + b"/" + os.fsencode(folder_name(self._name, step))

    def go_on(self) -> PartFound:
        """Take all steps that are possible now.

        Raises:
            TargetError, OSError: it cannot be done now.
        """
        here = None
        with suppress(FileNotFoundError):
            here = sharded_folder.look(self._look.folder, self._look.parts)
        if here is None or not here.is_machines_part:
            return PartFound(self._look)  # it went, or has its name; the next scan knows
        self._run = next(iter(here.receipts.values())).save.run
        last, trouble = MasterStep.WAIT, ""
        for _ in range(MAX_STEPS):
            there = self._look_there(here)
            step = next_step(there)
            if step is MasterStep.DONE:
                return self._done(there)
            if step is MasterStep.REMOVE:
                return self._removed(there)
            if step in {MasterStep.WAIT, MasterStep.STAND_BY, MasterStep.BLOCKED, MasterStep.LEAVE_OLDER}:
                return self._waits(step, there, here)
            if trouble and step is last:
                break
            last, trouble = step, self._carry_out(step, there)
        return PartFound(
            self._look, f"{self._what}: {trouble or 'others change it on the master all the time'}"
        )

    def _look_there(self, here: sharded_step.SaveInTheMaking) -> OnMaster:
        """Read the state that decides on the next step."""
        stands_by = self._look.stands_by and 0 not in here.receipts
        if stands_by and _age_s(here) < YOUNG_S and self._session.stat(self._final) is None:
            return OnMaster(here, stands_by=True)  # one request, however many machines there are
        making = self._listed(self._making + b"/" + _OWN)  # first: a concurrent rename is seen afterwards
        final = self._listed(self._final + b"/" + _OWN)
        whole, content = self._whole(final)
        if whole is not None and whole.save.token == self._token:
            found = sharded_step.SaveInTheMaking(self._token, {}, {}, whole)
            return OnMaster(found, content=content, files=self._files(self._final, final))
        begins = (whole is None and final) or len(list(_ranks(making))) == _world(here)
        if stands_by and begins and time.time() < _last_receipt_s([*making, *final]) + stand_by_s(here):
            return OnMaster(here, stands_by=True)
        return self._judged(here, making, final, None if whole is None else whole.order)

    def _judged(
        self, here: sharded_step.SaveInTheMaking, making: _Listing, final: _Listing, holder: int | None
    ) -> OnMaster:
        """State of an incomplete save; `holder`: order of the complete one that has its name."""
        if holder is None and (final or self._session.stat(self._final) is not None):
            receipts = self._receipts(self._final, final)
            if any(one.save.token == self._token for one in receipts.values()):
                return self._complete(self._final, final, receipts, placed=True)
            holder = max((one.order for one in receipts.values()), default=NO_CHECKPOINT)
            if any(holder > one.order for one in here.receipts.values()):
                holder = NO_CHECKPOINT  # that one is incomplete so far
        ranks = frozenset(_ranks(making))
        if len(ranks) < _world(here):
            late = time.time_ns() - max(one.order for one in here.receipts.values()) > LATE_NS
            asks = late or not ranks.issuperset(here.beside)  # who removed ours?
            fence = self._fence() if asks else None
            found = sharded_step.SaveInTheMaking(self._token, here.receipts, {}, None, holder, fence)
            return OnMaster(found, ranks)
        receipts = self._receipts(self._making, making)
        puts_away = self._look.replaces and 0 in here.receipts
        return self._complete(self._making, making, receipts, holder=holder, puts_away=puts_away)

    def _complete(
        self,
        folder: bytes,
        own: _Listing,
        receipts: Mapping[int, Receipt],
        *,
        holder: int | None = None,
        placed: bool = False,
        puts_away: bool = False,
    ) -> OnMaster:
        """State of a save of which no receipt seems to be missing."""
        files = self._files(folder, own)
        sizes = {path: state.size for path, state in files.items()}
        ours = {rank: one for rank, one in receipts.items() if one.save.token == self._token}
        found = sharded_step.SaveInTheMaking(self._token, ours, sizes, None, holder, self._fence())
        return OnMaster(found, frozenset(ours), placed, puts_away, files=files)

    def _fence(self) -> Fence | None:
        """The fence of the later opening, here or there; where ours is later, the master gets it.

        Which run owns the folder is decided here alone: a fence of another run there comes from a copied
        tree.
        """
        here = read_fence(self._look.folder)
        if here is not None and here.run != self._run:
            return here
        path = self._above + b"/" + os.fsencode(FENCE_FILE)
        there = None
        with suppress(MissingError, RemoteProtocolError):
            there = Fence.decode(self._session.read(path, 0, MAX_RECEIPT_BYTES))
        if there is not None and (there.run != self._run or there.epoch > time.time_ns() + AHEAD_NS):
            there = None
        if here is None or (there is not None and here.epoch <= there.epoch):
            return there
        temp = self._above + b"/" + _TEMP + secrets.token_hex(4).encode()
        fence = SmallFile(path, temp, here.encode(), here.epoch // 10**9, None, lambda: True, mode=0o644)
        self._session.put_own(fence)
        return here

    def _carry_out(self, step: MasterStep, there: OnMaster) -> str:
        """Take one step; a failure is returned in words, since another publisher may have taken it."""
        session, own = self._session, self._final + b"/" + _OWN
        if not session.moves_folders:
            return NO_RENAME
        try:
            if step is MasterStep.TAKE_NAME:
                self._rename(self._making, self._final)
            elif step is MasterStep.GIVE_BACK:
                self._rename(self._final, self._making)
            elif step is MasterStep.PUT_AWAY_OLDER:
                self._rename(self._final, self._going())
            elif step is MasterStep.PUT_METADATA:
                staged = self._final + b"/" + os.fsencode(STAGED_METADATA)
                session.rename(staged, self._final + b"/" + os.fsencode(METADATA))
            else:
                self._write_whole(there, own)
        except LinkError:
            raise
        except (MissingError, ConflictError, TransientError) as error:
            return str(error)
        return ""

    def _rename(self, old: bytes, new: bytes) -> None:
        self._session.rename(old, new)
        self._session.forget_folders()
        if self._session.syncs:
            self._session.sync([new])

    def _write_whole(self, there: OnMaster, own: bytes) -> None:
        """Put `whole.json`, with a time later than that of all files in it, whoever writes it."""
        for path in there.files:  # leftovers of killed publishers
            if path.startswith(f"{OWN_FOLDER}/{os.fsdecode(_TEMP)}"):
                self._session.remove(self._final + b"/" + os.fsencode(path))
        receipts = there.found.receipts
        mode = there.files[receipt_name(0)].mode
        named = [entry.file for receipt in receipts.values() for entry in receipt.files]
        named += [METADATA, *map(receipt_name, receipts)]
        (result,) = self._session.put_many(
            [
                SmallFile(
                    own + b"/" + _WHOLE,
                    own + b"/" + _TEMP + secrets.token_hex(4).encode(),
                    whole_of(receipts).encode(),
                    1 + max(there.files[path].mtime_s for path in named),
                    None,
                    lambda: True,
                    mode=0o600 if mode is None else mode & 0o777,
                )
            ]
        )
        if not isinstance(result, RemoteStat):
            raise result

    def _done(self, there: OnMaster) -> PartFound:
        """Delete leftovers in the making there; here the save takes its name."""
        for name, _ in self._listed(self._above):
            if name.startswith(_GOING) or self._above + b"/" + name == self._making:
                _remove(self._session, self._above + b"/" + name)
        look = self._look
        times = {path: state.mtime_s * 10**9 for path, state in there.files.items()}
        finish_on_master(look.folder, there.content, os.fsdecode(look.item), look.target, times=times)
        remove_superseded_late(look.folder, self._name)
        return PartFound(look)

    def _removed(self, there: OnMaster) -> PartFound:
        if not self._take_away(self._final if there.placed else self._making):
            return PartFound(self._look, f"{self._what}: it became whole on the master just now")
        look, fence = self._look, there.found.fence
        if fence is not None:
            raise_fence(look.folder, fence.run, fence.epoch)
        if there.found.holder is not None:
            sharded_removal.remove(look.folder, look.parts)
        return PartFound(look)

    def _take_away(self, folder: bytes) -> bool:
        """Rename and then delete a folder into which another publisher may be writing.

        False where it has become complete meanwhile; then it stays.
        """
        if not self._session.moves_folders:  # no publisher works there
            _remove(self._session, folder)
        elif self._session.stat(folder) is not None:
            going = self._going()
            with suppress(MissingError):  # another publisher did it
                self._rename(folder, going)
            if self._session.stat(going + b"/" + _OWN + b"/" + _WHOLE) is not None:
                self._rename(going, folder)
                return False
            _remove(self._session, going)
        return True

    def _going(self) -> bytes:
        """A name for a folder that is about to be deleted."""
        return self._above + b"/" + _GOING + secrets.token_hex(8).encode()

    def _waits(self, step: MasterStep, there: OnMaster, here: sharded_step.SaveInTheMaking) -> PartFound:
        if step is MasterStep.STAND_BY:
            text = "this machine's part is on the master, and waits for the others"
            return PartFound(self._look, f"{self._what}: {text}")
        if step is not MasterStep.WAIT:
            return PartFound(self._look, f"{self._what}: on the master {step.value}")
        world = _world(here)
        missing = set(range(world)) - there.ranks
        if not missing:
            missing = set(there.found.missing)
        lost = not missing.isdisjoint(here.beside)
        if not missing:
            return PartFound(self._look, f"{self._what}: its ranks did not plan alike")
        named = ", ".join(map(str, sorted(missing)[:MAX_RANKS_NAMED]))
        more = ", …" if len(missing) > MAX_RANKS_NAMED else ""
        count = f"{world - len(missing)} of {world} shards are on the master"
        return PartFound(self._look, f"{self._what}: {count}; missing: rank {named}{more}", lost)

    def _whole(self, own: _Listing) -> tuple[Whole | None, bytes]:
        """Content of `whole.json` under the final name; None without a valid one."""
        state = dict(own).get(_WHOLE)
        if state is None or state.size > MAX_WHOLE_BYTES:
            return None, b""
        with suppress(MissingError, RemoteProtocolError):
            content = self._session.read(self._final + b"/" + _OWN + b"/" + _WHOLE, 0, state.size)
            return Whole.decode(content), content
        return None, b""

    def _listed(self, path: bytes) -> _Listing:
        return listing_or_empty(self._session, path)

    def _files(self, folder: bytes, own: _Listing) -> dict[str, RemoteStat]:
        files = {os.fsdecode(name): state for name, state in self._listed(folder) if state.kind == "file"}
        files.update({f"{OWN_FOLDER}/{os.fsdecode(name)}": state for name, state in own})
        return files

    def _receipts(self, folder: bytes, own: _Listing) -> dict[int, Receipt]:
        """The readable receipts in a folder, by rank."""
        found = {}
        wanted = [
            (rank, Probe(folder + b"/" + _OWN + b"/" + name, ((0, state.size),)))
            for name, state in own
            if (rank := receipt_rank(os.fsdecode(name))) is not None and state.size <= MAX_RECEIPT_BYTES
        ]
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = wanted[start : start + READ_AT_ONCE]
            for (rank, _), read in zip(some, self._session.probe([one for _, one in some]), strict=True):
                with suppress(RemoteProtocolError):
                    if isinstance(read, StatWithParts) and read.parts:
                        receipt = Receipt.decode(read.parts[0])
                        found.update({rank: receipt} if receipt.rank == rank else {})
        return found


def stand_by_s(here: sharded_step.SaveInTheMaking) -> float:
    """Seconds after the last receipt that a machine without rank 0 waits for that of rank 0 to publish."""
    return STAND_BY_S * (1 + min(here.receipts) / _world(here))


def _last_receipt_s(own: Iterable[tuple[bytes, RemoteStat]]) -> float:
    times = (float(state.mtime_s) for name, state in own if receipt_rank(os.fsdecode(name)) is not None)
    return max(times, default=0.0)


def _age_s(here: sharded_step.SaveInTheMaking) -> float:
    return time.time() - max(receipt.order for receipt in here.receipts.values()) / 1e9


def _world(here: sharded_step.SaveInTheMaking) -> int:
    return next(iter(here.receipts.values())).save.world


def _ranks(own: _Listing) -> Iterator[int]:
    for name, _ in own:
        rank = receipt_rank(os.fsdecode(name))
        if rank is not None:
            yield rank


def _remove(session: TargetSession, folder: bytes) -> None:
    """Delete a save's folder, `whole.json` and receipts first. Others may do the same."""
    own = folder + b"/" + _OWN
    for inner in (own, folder):
        for name, state in listing_or_empty(session, inner):
            if state.kind != "folder":
                session.remove(inner + b"/" + name)
        session.remove_folder(inner)
