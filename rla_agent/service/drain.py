"""One-time ingest of a spool (`rla-agent drain`).

Any spool can be drained: this machine's own, or one copied from a lost machine. The base files in a spool
have the states of its outputs, so that a copy can be ingested without the agent.db of its machine. Missing
item folders are made. A stream is deleted from the spool when all of it is durable: a repeated drain writes
nothing twice, and an interrupted one continues where it stopped.

Drawing a figure loads a pickle, which runs code that it names. So the figures of another machine's spool stay
in it, with their streams, until the user declares its writer trusted.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rla_agent.jobs.job_queue import JobKind
from rla_agent.jobs.runners import KINDS
from rla_agent.model.records import Position
from rla_agent.pipeline.open_stream import Adopt
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.pipeline.volume import Stop, Volume
from rla_agent.service.agent_lock import AgentLock
from rla_agent.service.flush_client import spool_end, wait_durable
from rla_agent.service.lock_holder import DRAIN_HOLDER, describe_holder, read_holder
from rla_agent.service.root_map import RootMap, parse_roots
from rla_agent.store.agent_db import AgentDatabase
from rla_agent.store.sqlite import open_or_replace
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places, is_of_this_machine, other_states
from rla_client.contract.errors import AgentRunningError, ArgumentError, RlaError
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.filesystem.trusted_paths import check_entries, make_private
from rla_client.contract.item.foreign_mark import MARKED_KINDS, mark_foreign
from rla_client.contract.job.media_job import JOB_FIGURE
from rla_client.contract.layout import ARCHIVE_TESTER, CONSOLE, DEFAULT_LOG_TYPES, OUTPUT_NAMES, item_path
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.segments import stream_names

POLL_S = 0.05
PATIENCE_S = 60.0  # without any progress; then the rest is reported
STOP_S = 20.0
EXIT_DONE, EXIT_LEFT = 0, 1
_CONSOLE_NUMBER = re.compile(r"(?<=^console)\.[0-9]{1,6}(?=\.txt$)")  # of a second capture
OWN_FOLDER = ".rla-drain"  # beside the streams of a copied spool: positions of an interrupted drain
FOREIGN_KINDS = {**KINDS, JOB_FIGURE: replace(KINDS[JOB_FIGURE], held=True)}  # of another machine's spool


@dataclass(slots=True)
class Drained:
    """Result of a drain.

    Attributes:
        taken: streams that are durable in their final files and were deleted from the spool.
        live: streams of processes that still write; their present records are durable.
        left: stream → why it is still there.
        broken: where a damaged agent.db was put, empty if it was sound.
        figures: number of undrawn figures, as the spool is another machine's.
    """

    taken: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    broken: str = ""
    figures: int = 0


def drain_spool(
    own: Places, spool: Path | None, mappings: Sequence[str], settings: AgentConfig, *, trust: bool = False
) -> tuple[list[str], int]:
    """Drain a spool, the own one by default.

    Args:
        own: places of this environment.
        spool: another spool or state folder.
        mappings: `OLD=NEW` for data roots that lie elsewhere now.
        settings: the AGENT section.
        trust: draw the figures of another machine's spool, too.

    Returns:
        Lines for the user, and the exit code: 0 when nothing is left.

    Raises:
        ArgumentError: a mapping is invalid.
        RlaError: the spool cannot be ingested.
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
    return _report(folder, _take_in(places, folder, roots, settings, trust=trust))


def _is_of_former_name(spool: Path, own: Places) -> bool:
    """Whether it is this machine's, under an earlier host name: its data roots are the ones named."""
    formers = (os.path.realpath(state) for state in other_states(own.state) if is_of_this_machine(state))
    return spool.name == "spool" and str(spool.parent) in formers


def _wait(places: Places) -> tuple[list[str], int]:
    names = stream_names(places.spool)
    left = wait_durable(places, names, None)
    lines = [f"an agent serves this spool: {len(names) - len(left)} streams are durable"]
    lines += [f"left: {name}; see: rla-agent status" for name in sorted(left)]
    return lines, EXIT_LEFT if left else EXIT_DONE


def _report(folder: Path, result: Drained) -> tuple[list[str], int]:
    lines = [f"{folder}: {len(result.taken)} streams stored"]
    if result.broken:
        lines.insert(0, f"agent.db was damaged and is now {result.broken}; positions came from the spool")
    if result.live:
        lines.append(f"{len(result.live)} streams are still being written; durable up to now")
    lines += [f"left: {name}: {why}" for name, why in sorted(result.left.items())]
    if any("is not here" in why or "another folder here" in why for why in result.left.values()):
        lines.append("to discard the rows of data roots that will not come back: rla-agent forget")
    if result.figures:
        lines.append(
            f"{result.figures} figure(s) stay in this spool, not drawn. Drawing them runs code that the "
            "spool contains; if you trust whoever wrote it, drain it again with --trust"
        )
    return lines, EXIT_LEFT if result.left else EXIT_DONE


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


def _take_in(places: Places, spool: Path, roots: RootMap, settings: AgentConfig, *, trust: bool) -> Drained:
    """Ingest all streams of a spool; returns when nothing more can be done.

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
            targets = {name: spool_end(spool / name) for name in names}
            kinds = KINDS if roots.check or trust else FOREIGN_KINDS
            volume = _Drain(places, settings, roots, targets, kinds)
            _drain_volume(volume, spool, names, result)
    finally:
        if volume is None or not volume.is_alive():
            lock.release()  # else it goes with the process: a job still writes
    return result


def _prepare(folder: Path, roots: RootMap, result: Drained) -> bool:
    """Whether a stream can be ingested here; makes its item folders where another machine had them."""
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
    """Why a stream of another machine's spool is refused; empty when it may be ingested.

    Its opening frame names the target folders and is untrusted: only folders of an item are allowed, and a
    plain folder that the user named.
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
        return "its files would not be those of a run in a database"
    for kind, folder in opening.folders.items():
        item = item_path(kind, opening.table, opening.index)
        own = os.path.dirname(item) if kind == ARCHIVE_TESTER else item
        if kind not in DEFAULT_LOG_TYPES or folder != own:
            return f"it would write to {folder}, which is not a folder of its run"
    return ""


class _Drain(Volume):
    """The volume of a drain, with its results."""

    def __init__(
        self,
        places: Places,
        settings: AgentConfig,
        roots: RootMap,
        targets: Mapping[str, Position],
        kinds: Mapping[str, JobKind],
    ) -> None:
        self.failed = threading.Event()
        self.done: list[str] = []
        self._ends = targets
        super().__init__(
            "drain", places, settings, self.failed.set, self.done.append, roots.adjust, kinds=kinds
        )

    def waiting(self) -> dict[str, str]:
        """Unfinished streams, with known reasons."""
        found: dict[str, str] = {}
        for stream in list(self.streams.values()):
            errors = [output.error for output in stream.outputs if output.error]
            errors += self._jobs.wait_for(stream.name)
            held = self._jobs.held(stream.name)
            errors += [f"figures not drawn: {held}"] if held else []
            if stream.parked:
                found[stream.name] = stream.parked
                continue
            durable = min([stream.durable, *(output.durable for output in list(stream.outputs))])
            if stream.writer_gone or durable < self._ends[stream.name]:
                found[stream.name] = "; ".join(errors) or "not done yet"
        return found

    def rests(self, name: str) -> bool:
        """Whether a stream makes no more progress: it is parked, or only held figures are left of it."""
        stream, held = self.streams[name], self._jobs.held(name)
        only_held = held > 0 and held == self._jobs.left(name) and stream.all_durable >= self._ends[name]
        return bool(stream.parked) or only_held

    def held(self) -> int:
        """Number of held figures."""
        return sum(self._jobs.held(name) for name in list(self.streams))

    def progress(self) -> tuple[object, ...]:
        """Value that changes whenever something was ingested, or a figure was drawn."""
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
            if known >= set(names) and all(volume.rests(n) for n in waiting if n in volume.streams):
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
    result.figures = volume.held()
    result.live += [name for name in volume.streams if name not in result.left]
