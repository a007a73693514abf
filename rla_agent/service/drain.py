"""A spool that is taken in once, waited for, or given up: `rla-agent drain` and `rla-agent forget`.

Any spool can be taken in: this machine's own, or one copied from a machine that is gone. The folder
of a copy says nothing of where the data root lies now, so the roots can be mapped (`OLD=NEW`) and the
device and inode in the opening frames do not count; item folders that are missing there are made.
The base files in a spool say where its outputs stood, so that a copy can be taken in without the
agent.db of its machine. A stream leaves the spool when all of it is durable: taking in twice writes
nothing twice, and a drain that was interrupted continues where it stopped.

`wait_durable` asks the agent that serves a spool; it is what `rla-agent run` ends with.

A stream whose data root is not there waits in the spool, for ever if need be: the root may only be
unmounted. `give_up` is how a user says that it will not come back. Streams that a process still writes, and
those whose root is there, are never touched. A serving agent notices that a stream's folder is gone and drops
what it holds of it.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rla_agent.model.ingest import Position
from rla_agent.model.states import RunEvent, RunRecord
from rla_agent.outputs.data_roots import same_root
from rla_agent.pipeline.lifecycle import Adopt, remove_stream
from rla_agent.pipeline.stream import read_opening
from rla_agent.pipeline.volume import Stop, Volume
from rla_agent.service.control import AgentLock, describe_holder, read_holder
from rla_agent.store.database import AgentDatabase, Changes, open_or_replace
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.dealer import Dealer
from rla_client.contract.agent.places import Places, is_of_this_machine, other_states
from rla_client.contract.checkpoint.provenance import MARKED_KINDS, mark_foreign
from rla_client.contract.errors import AgentRunningError, ArgumentError, RemoteProtocolError, RlaError
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.filesystem.trusted_paths import check_entries, make_private
from rla_client.contract.layout import ARCHIVE_TESTER, CONSOLE, DEFAULT_LOG_TYPES, OUTPUT_NAMES, item_path
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import MessageKind, decode_message, encode_message
from rla_client.contract.spool.segments import end_of, stream_names, stream_size
from rla_client.contract.spool.writer_liveness import writer_alive

ASK_AGAIN_S = 1.0
POLL_S = 0.05
PATIENCE_S = 60.0  # without any progress, what is left is left and reported
STOP_S = 20.0
EXIT_DONE, EXIT_LEFT = 0, 1
DRAIN_HOLDER = "drain"  # what the lock says of a process that serves nobody
_CONSOLE_NUMBER = re.compile(r"(?<=^console)\.[0-9]{1,6}(?=\.txt$)")  # of a second capture
OWN_FOLDER = ".rla-drain"  # beside the streams of a copied spool: positions of an interrupted drain
GIVEN_UP = "its data root is gone, and its waiting rows were given up: rla-agent forget"


@dataclass(frozen=True, slots=True)
class RootMap:
    """Where data roots lie now: old absolute path → new one; the longest that fits counts."""

    roots: Mapping[str, str] = field(default_factory=dict)
    check: bool = True

    def place(self, root: str) -> str:
        """The folder that stands for `root` here."""
        old = max(self.fitting(root), key=len, default="")
        if not old:
            return root
        return os.path.normpath(self.roots[old] + "/" + root[len(old) :])

    def fitting(self, root: str) -> list[str]:
        """The old paths that `root` is, or is below of."""
        return [old for old in self.roots if root == old or root.startswith(old.rstrip("/") + "/")]

    def adjust(self, opening: Opening) -> Opening:
        """The opening as it counts here; device and inode are taken from the folder that is there.

        A spool of another machine names no interpreter: what it calls one is a file of this machine.
        """
        root = self.place(opening.root)
        if not self.check:
            opening = opening._replace(python="")
        if self.check and root == opening.root:
            return opening
        try:
            found = os.stat(root)
        except OSError:
            return opening._replace(root=root)
        return opening._replace(root=root, root_device=found.st_dev, root_inode=found.st_ino)


@dataclass(slots=True)
class Drained:
    """What a drain did.

    Attributes:
        taken: streams that are durable in their final files and left the spool.
        live: streams of processes that still write; all that was there is durable.
        left: stream → why it is still there.
        broken: where a damaged agent.db was put, empty if it was sound.
    """

    taken: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    broken: str = ""


def drain_spool(
    own: Places, spool: Path | None, mappings: Sequence[str], settings: AgentConfig
) -> tuple[list[str], int]:
    """Drain a spool, the own one by default.

    Args:
        own: places of this environment.
        spool: another spool or state folder.
        mappings: `OLD=NEW` for data roots that lie elsewhere now.
        settings: the AGENT section.

    Returns:
        Lines for the user, and the exit code: 0 when nothing is left.

    Raises:
        ArgumentError: a mapping cannot be meant.
        RlaError: the spool cannot be taken in.
    """
    roots = parse_roots(mappings)
    if spool is None:
        own.create()
        places, folder = own, own.spool
    else:
        places, folder = _spool_places(spool)
    ours = False
    with suppress(OSError):
        ours = os.path.samefile(folder, own.spool)
    if ours:
        places, folder = own, own.spool  # also where a bind mount leads to it
    if agent_alive(places):
        if read_holder(places).get("service") == DRAIN_HOLDER:
            raise AgentRunningError(describe_holder(places))
        if mappings:
            raise ArgumentError(
                "an agent serves this spool; stop it before mapping data roots: rla-agent stop"
            )
        return _wait(places)
    if not ours and not _is_of_former_name(folder, own):
        roots = RootMap(roots.roots, check=False)
    return _told(folder, _take_in(places, folder, roots, settings))


def _is_of_former_name(spool: Path, own: Places) -> bool:
    """Whether it is this machine's, under an earlier host name: its data roots are the ones named."""
    formers = (os.path.realpath(state) for state in other_states(own.state) if is_of_this_machine(state))
    return spool.name == "spool" and str(spool.parent) in formers


def parse_roots(mappings: Sequence[str]) -> RootMap:
    """Read `OLD=NEW` texts.

    Raises:
        ArgumentError: not of that form, OLD not absolute, or NEW not a folder.
    """
    roots: dict[str, str] = {}
    for mapping in mappings:
        old, sign, new = mapping.partition("=")
        if not sign or not os.path.isabs(old) or not os.path.isdir(new):
            raise ArgumentError(
                f"--data-root {mapping}: must be OLD=NEW, an absolute path and a folder that is here"
            )
        roots[os.path.normpath(old)] = os.path.realpath(new)
    return RootMap(roots)


def _wait(places: Places) -> tuple[list[str], int]:
    names = stream_names(places.spool)
    left = wait_durable(places, names, None)
    lines = [f"an agent serves this spool: {len(names) - len(left)} streams are durable"]
    lines += [f"left: {name}; see: rla-agent status" for name in sorted(left)]
    return lines, EXIT_LEFT if left else EXIT_DONE


def _told(folder: Path, result: Drained) -> tuple[list[str], int]:
    lines = [f"{folder}: {len(result.taken)} streams stored"]
    if result.broken:
        lines.insert(0, f"agent.db was damaged and is now {result.broken}; positions came from the spool")
    if result.live:
        lines.append(f"{len(result.live)} streams are still being written; durable up to now")
    lines += [f"left: {name}: {why}" for name, why in sorted(result.left.items())]
    if any("is not here" in why or "another folder here" in why for why in result.left.values()):
        lines.append("rows of data roots that will not come back are given up by: rla-agent forget")
    return lines, EXIT_LEFT if result.left else EXIT_DONE


# -- taking in --------------------------------------------------------------------------------


def _spool_places(folder: Path) -> tuple[Places, Path]:
    """The places that go with a spool, and the spool itself; `folder` is one, or a state folder with one."""
    folder = Path(os.path.realpath(folder))  # of a link, the state folder that it leads to
    spool = folder / "spool" if (folder / "spool").is_dir() else folder
    if not spool.is_dir() or not _may_be_a_spool(spool):
        raise RlaError(f"{folder} is not a folder with a spool")
    beside = spool.parent
    if spool.name == "spool" and (beside / "agent.lock").exists():
        runtime = read_holder(Places(beside, beside)).get("runtime")
        return Places(beside, Path(runtime) if isinstance(runtime, str) else beside), spool
    own = spool / OWN_FOLDER
    return Places(own, own), spool


def _may_be_a_spool(folder: Path) -> bool:
    if stream_names(folder) or (folder.name == "spool" and (folder.parent / "agent.lock").exists()):
        return True
    return all(name[0] == "." or name == "lost+found" for name in os.listdir(folder))


def _take_in(places: Places, spool: Path, roots: RootMap, settings: AgentConfig) -> Drained:
    """Take in all streams of a spool; returns when nothing more can be done.

    The lock and agent.db of `places` are used; the lock is held meanwhile.
    """
    make_private(places.state)
    check_entries(places.state)  # agent.db says where data go
    lock = AgentLock(places, DRAIN_HOLDER, spool=spool)
    result = Drained()
    volume: _Drain | None = None
    try:
        names = [name for name in stream_names(spool) if _prepare(spool / name, roots, result)]
        database, result.broken = open_or_replace(places.database, AgentDatabase)
        with closing(database):
            targets = {name: _spool_end(spool / name) for name in names}
            volume = _Drain(places, settings, roots, targets)
            _drain_volume(volume, spool, names, result)
    finally:
        if volume is None or not volume.is_alive():
            lock.release()  # else it goes with the process: a job still writes
    return result


def _prepare(folder: Path, roots: RootMap, result: Drained) -> bool:
    """Whether a stream can be taken in here; makes its item folders where another machine had them."""
    try:
        opening, _ = read_opening(folder)
        root = roots.place(opening.root)
        if not os.path.isdir(root):
            result.left[folder.name] = f"its data root {root} is not here; say where: --data-root {root}=DIR"
            return False
        named = bool(roots.fitting(opening.root))
        problem = "" if roots.check else _foreign_problem(opening, named=named)
        if problem:
            result.left[folder.name] = problem
            return False
        if not roots.check or root != opening.root:
            for kind, relative in opening.folders.items():
                with held_folder(root, relative, create=True) as item:
                    if kind in MARKED_KINDS and not roots.check:
                        mark_foreign(item)
    except FileNotFoundError:
        return False
    except (RlaError, OSError) as error:
        result.left[folder.name] = str(error)
        return False
    return True


def _foreign_problem(opening: Opening, *, named: bool) -> str:
    """Why a stream of another machine's spool is not taken in; empty when it may be.

    It says itself where its files go, and may say what its maker likes: only folders of an item will do, and
    a plain folder that the user named.
    """
    if not opening.table and dict(opening.folders) == {"log": "."}:
        root, hidden = opening.root, [name for name in opening.names.values() if name.startswith(".")]
        if hidden:
            return f"it would write the hidden file {hidden[0]!r}"
        return "" if named else f"it goes to the plain folder {root}; say so: --data-root {root}={root}"
    renamed = any(
        OUTPUT_NAMES.get(output, name) != (_CONSOLE_NUMBER.sub("", name) if output == CONSOLE else name)
        for output, name in opening.names.items()
    )
    if RunIndex.parse(opening.index) is None or renamed or f"/{opening.table}".count("/."):
        return "what it would write are not the files of a run in a database"
    for kind, folder in opening.folders.items():
        item = item_path(kind, opening.table, opening.index)
        own = os.path.dirname(item) if kind == ARCHIVE_TESTER else item
        if kind not in DEFAULT_LOG_TYPES or folder != own:
            return f"it would write to {folder}, which is not a folder of its run"
    return ""


class _Drain(Volume):
    """The one volume of a drain, and what it reports."""

    def __init__(
        self, places: Places, settings: AgentConfig, roots: RootMap, targets: Mapping[str, Position]
    ) -> None:
        self.failed = threading.Event()
        self.done: list[str] = []
        self._ends = targets
        super().__init__("drain", places, settings, self.failed.set, self.done.append, roots.adjust)

    def waiting(self) -> dict[str, str]:
        """Streams that are not through, and what is known of the reason."""
        found: dict[str, str] = {}
        for stream in list(self.streams.values()):
            errors = [output.error for output in stream.outputs if output.error]
            errors += self._jobs.wait_for(stream.name)
            if stream.parked:
                found[stream.name] = stream.parked
                continue
            durable = min([stream.durable, *(output.durable for output in list(stream.outputs))])
            if stream.writer_gone or durable < self._ends[stream.name]:
                found[stream.name] = "; ".join(errors) or "not done yet"
        return found

    def progress(self) -> tuple[object, ...]:
        """Changes whenever something was taken in, or a figure was drawn."""
        streams = list(self.streams.values())
        jobs = [self._jobs.left(stream.name) for stream in streams]
        return (len(self.done), *(stream.durable for stream in streams), *jobs)


def _drain_volume(volume: _Drain, spool: Path, names: list[str], result: Drained) -> None:
    for name in names:
        volume.put(Adopt(name, spool / name))
    volume.start()
    seen, since = volume.progress(), time.monotonic()
    try:
        while not volume.failed.is_set():
            waiting = volume.waiting()
            known = set(volume.done) | volume.streams.keys() | volume.faults.keys()
            if known >= set(names) and all(volume.streams[n].parked for n in waiting if n in volume.streams):
                break
            if volume.progress() != seen:
                seen, since = volume.progress(), time.monotonic()
            if time.monotonic() - since > PATIENCE_S:
                break
            time.sleep(POLL_S)
    finally:
        volume.put(Stop(time.monotonic() + STOP_S))
        volume.join(STOP_S + 5)
    if volume.failed.is_set():
        raise RlaError("taking in failed; what is durable stays so, the rest is still in the spool")
    result.taken += volume.done
    result.left.update({name: volume.faults[name] for name in names if name in volume.faults})
    result.left.update({name: why for name, why in volume.waiting().items() if name not in volume.done})
    result.live += [name for name in volume.streams if name not in result.left]


# -- beside a serving agent ---------------------------------------------------------------------


def wait_durable(places: Places, names: Iterable[str], deadline: float | None) -> set[str]:
    """Wait until the serving agent has made durable what these streams hold now, figures and videos too.

    Args:
        places: of the agent.
        names: streams in its spool.
        deadline: of the monotonic clock, None for none.

    Returns:
        Streams for which that did not come about: no time left, no agent any more, or refused.
    """
    requests = {name: _flush_request(places.spool / name) for name in names}
    open_ones = {name: request for name, request in requests.items() if request is not None}
    refused: set[str] = set()

    def waiting() -> bool:
        return bool(open_ones) and (deadline is None or time.monotonic() < deadline) and agent_alive(places)

    while waiting():
        try:
            with closing(Dealer(places.data_socket)) as dealer:
                asked, unasked = -math.inf, []
                while waiting():
                    if time.monotonic() - asked >= ASK_AGAIN_S:
                        asked, unasked = time.monotonic(), list(open_ones.values())
                    while unasked and dealer.connected(POLL_S) and dealer.send(unasked[-1]):
                        unasked.pop()
                    for name, done in _answers(dealer):
                        if open_ones.pop(name, None) is not None and not done:
                            refused.add(name)
        except OSError:  # it does not listen yet, or ends
            time.sleep(POLL_S)
    return refused | open_ones.keys()


def _flush_request(folder: Path) -> bytes | None:
    """Ask for everything up to the present end of a stream; None when it is gone."""
    number, offset = _spool_end(folder)
    if not number:
        return None
    return encode_message(MessageKind.FLUSH, {"s": folder.name, "n": number, "o": offset, "m": True})


def _spool_end(folder: Path) -> Position:
    """Where a stream ends now; zeros when it is gone."""
    with suppress(OSError):
        return Position(*end_of(folder))
    return Position(0, 0)


def _answers(dealer: Dealer) -> Iterator[tuple[str, bool]]:
    """Streams that the agent has answered for, and whether they are durable."""
    timeout_s = POLL_S
    while (message := dealer.receive(timeout_s)) is not None:
        timeout_s = 0.0
        with suppress(RemoteProtocolError):
            _, answer, _ = decode_message(message)
            yield str(answer.get("s")), bool(answer.get("done"))


# -- giving up --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stream that waits for a data root.

    Attributes:
        folder: in the spool.
        opening: its opening frame.
        size: bytes in the spool, payloads included.
        written: Unix seconds of the last write.
    """

    folder: Path
    opening: Opening
    size: int
    written: float


def waiting_streams(spool: Path) -> list[Waiting]:
    """Streams of ended processes whose data root is not there, or another one."""
    found: list[Waiting] = []
    for name in stream_names(spool):
        folder = spool / name
        with suppress(RlaError, OSError):
            opening, _ = read_opening(folder)
            if writer_alive(folder) is False and not same_root(opening):
                found.append(Waiting(folder, opening, *stream_size(folder)))
    return found


def chosen(streams: Sequence[Waiting], roots: Collection[str], *, every: bool) -> list[Waiting]:
    """Those of some data roots, or all.

    Raises:
        ArgumentError: nothing waits for one of the roots.
    """
    if every:
        return list(streams)
    known = {stream.opening.root for stream in streams}
    wanted = {os.path.abspath(root) for root in roots}
    for root in sorted(wanted - known):
        raise ArgumentError(
            f"no ended stream waits for the data root {root}; those that do: rla-agent forget"
        )
    return [stream for stream in streams if stream.opening.root in wanted]


def give_up(places: Places, streams: Sequence[Waiting]) -> None:
    """Delete streams and say so of their runs.

    Raises:
        AgentRunningError: a drain is under way.
        OSError: a stream could not be deleted.
    """
    if agent_alive(places):
        for stream in streams:
            remove_stream(stream.folder)
        return
    lock = AgentLock(places, DRAIN_HOLDER)
    try:
        with closing(AgentDatabase(places.database)) as database:
            for stream in streams:
                remove_stream(stream.folder)
                changes = Changes(forgotten=[stream.folder.name])
                plain = database.run(stream.opening.run)
                if plain is not None:
                    now = time.time()
                    record = RunRecord.from_plain(plain).after(RunEvent.ITEM_GONE, now, GIVEN_UP)
                    changes.runs.append((record.run, now, record.live, {**plain, **record.to_plain(now)}))
                database.commit(changes)
    finally:
        lock.release()


def listing(streams: Sequence[Waiting]) -> list[str]:
    """One line for each data root, then one for each of its streams."""
    lines: list[str] = []
    for root in sorted({stream.opening.root for stream in streams}):
        some = [stream for stream in streams if stream.opening.root == root]
        size = sum(stream.size for stream in some)
        lines.append(f"{root}: {len(some)} streams, {size >> 10} KiB")
        for stream in some:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stream.written))
            lines.append(f"  {stream.folder.name}  last written {when}  {stream.opening.title}")
    return lines
