"""An earlier run: found by its date, index or `run_id`; what is known of it, and what waits in the spool.

Finding works on databases that were moved, on both index spellings, and on runs of the original, whose
pickled managers are read without importing or calling anything they name.

Which runs of a table bear a `run_id` is found without reading the run.json of every run. What was read once
is noted in `<data root>/log/<table>/.rla-run-ids.json`: `{day: {name: run_id}}`. A
run's id never changes, so a note is never out of date; where the file is missing or broken, or cannot be
written, the runs are read again.

Streams of an earlier run may wait in the spool, before a fork copies its files or a resume cuts them.
Nothing here needs an agent. What it has not taken in yet stays in the spool, and whoever asks decides
what can be done without it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.config.schema import password_variables
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, FETCHED_MARK, FOLDER_KINDS, LOG
from rla_client.contract.run_file import MAX_RUN_FILE_BYTES, RUN_FILE, run_file
from rla_client.contract.run_index import RECORD_DATE_FORMAT, RunIndex
from rla_client.contract.safe_names import check_table_name
from rla_client.contract.spool.opening import Opening, stream_opening
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import LOCK_NAME, writer_alive
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.run.archive import load_custom_data
from rla_client.run.item import Item
from rla_client.run.run import warn

NOTES = ".rla-run-ids.json"
MAX_NOTES_BYTES = 64 << 20  # of a million runs
UNNOTED_MAX = 200  # runs that are read again each time before the notes are written anew: some 5 ms
_RUN_KEY = re.compile(rb'"run_key":\s*("(?:[^"\\]|\\.)*")')
_LEVELS = (re.compile(r"\d{4}\Z"), re.compile(r"\d\d\Z"), re.compile(r"\d\d\Z"))

Notes = dict[str, dict[str, str]]
TAKEN_IN_S = 30.0  # for the agent to take in what a run left behind
ENDS_S = 30.0  # for the former process of a run to end
POLL_S = 0.02


class RunNotFoundError(ArgumentError):
    """No run, or several, answer to a date or index."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run as its files tell of it.

    Attributes:
        item: where it lies now.
        hyper_param: its hyper-parameters, nested.
        tracked: `key=value` texts.
        custom_data: its custom data, arrays included.
        run_file: content of run.json, empty without one.
        archive: what its archive_tester entry says, as plain data; empty without one.
    """

    item: Item
    hyper_param: dict[str, Any]
    tracked: list[str]
    custom_data: dict[str, Any]
    run_file: dict[str, Any]
    archive: Mapping[str, Any]


def find_item(root: str | os.PathLike[str], table: str, which: str) -> Item:
    """The item of a run.

    Args:
        root: data root.
        table: task table name.
        which: record date `YYYY/MM/DD/HH-MM-SS-ffffff`, or the whole index.

    Raises:
        RunNotFoundError: none or several match; the message names the neighbours.
    """
    check_table_name(table)
    day, _, name = str(which).strip("/").rpartition("/")
    found: dict[str, RunIndex] = {}
    near: list[str] = []
    for kind in (*FOLDER_KINDS, ARCHIVE_TESTER):
        folder = Path(root, kind, table, day)
        if not day or not folder.is_dir():
            continue
        for entry in sorted(os.listdir(folder)):
            stem = entry if kind != ARCHIVE_TESTER else os.path.splitext(entry)[0]
            index = RunIndex.parse(f"{day}/{stem}")
            if index is None:
                continue
            near.append(index.record_date)
            if stem.startswith(name):
                found[index.path] = index
    if len(found) != 1:
        what = "several runs match" if found else "there is no run"
        days = ", ".join(sorted(set(near))[:10]) or "none on that day"
        raise RunNotFoundError(
            f"{what} {which!r} in table {table!r} of {os.fspath(root)}; runs of that day: {days}"
        )
    index = next(iter(found.values()))
    return Item(os.path.abspath(root), table, index, index.opened)


def read_run(item: Item, archive: Mapping[str, Any] | None = None) -> FoundRun:
    """What a run's files tell of it; broken ones count as missing. `archive`: its entry, if it was read."""
    from rla_client.run.hyper_params import read_archive, read_hyper_params  # noqa: PLC0415

    stem = os.path.splitext(item.archive_file)[0]
    paths = tuple(f"{stem}{ending}" for ending in (".json", ".pkl") if os.path.exists(f"{stem}{ending}"))
    if archive is None:
        try:
            archive = read_archive(paths) or {}
        except (RlaError, OSError):
            archive = {}
    plain, _problems = read_hyper_params(Path(item.root), item.table, item.index.path)
    custom = archive.get("custom_data") or {}
    if paths and paths[0].endswith(".json"):
        custom = load_custom_data(paths[0], custom)
    return FoundRun(
        item,
        dict(archive.get("hyper_param") or plain or {}),
        [str(entry) for entry in archive.get("hyper_param_record") or ()],
        dict(custom),
        read_run_file(item),
        archive,
    )


def read_run_file(item: Item) -> dict[str, Any]:
    """run.json of a run, empty without a readable one."""
    return run_file(item.root, item.table, item.index.path)


def log_file_finder(
    record_date: str,
    task_table_name: str = "train",
    file_root: str = f"../{CHECKPOINT}/",
    log_type: str = "dir",
) -> tuple[str, str]:
    """Folder of a day and the name in it of the run of `record_date` (RLA's function).

    Args:
        record_date: `YYYY/MM/DD/HH-MM-SS-ffffff`.
        task_table_name: table.
        file_root: `<data_root>/<kind>`.
        log_type: `dir` looks for folders, `files` for files.

    Returns:
        The day's folder and the name, empty when there is none.

    Raises:
        ArgumentError: not a date, or another log_type.
    """
    if log_type not in {"dir", "files"}:
        raise ArgumentError(f"log_type is 'dir' or 'files', got {log_type!r}")
    from datetime import datetime  # noqa: PLC0415

    try:
        opened = datetime.strptime(record_date, RECORD_DATE_FORMAT)  # noqa: DTZ007 - local, as indices
    except ValueError as error:
        raise ArgumentError(
            f"a record date looks like 2026/11/21/09-30-01-123456, got {record_date!r}"
        ) from error
    folder = os.path.join(file_root, task_table_name, opened.strftime("%Y/%m/%d"))
    prefix = opened.strftime("%H-%M-%S-%f")
    if os.path.isdir(folder):
        for entry in sorted(os.scandir(folder), key=lambda e: (not e.name.endswith(".json"), e.name)):
            if entry.name.startswith(prefix) and entry.is_dir() == (log_type == "dir"):
                return folder, entry.name
    return folder, ""


def newest_first(table: Path, run_id: str) -> Iterator[RunIndex]:
    """The runs of a table that bear this id, by their record dates; also damaged ones that may bear it.

    Args:
        table: its folder below `log`.
        run_id: the user's name of a run.
    """
    notes, unnoted = _read(table), 0
    try:
        for day in _days(table, _LEVELS):
            known = notes.setdefault(day, {})
            for name in _names(table / day):
                noted, whole = known.get(name), True
                if not isinstance(noted, str):
                    found = _run_id(f"{table}/{day}/{name}/run.json")
                    if found is None:
                        continue
                    noted, whole = found
                    if whole:
                        known[name], unnoted = noted, unnoted + 1
                bears = noted == run_id or not (whole or noted)
                index = RunIndex.parse(f"{day}/{name}") if bears else None
                if index is not None:
                    yield index
    finally:
        if unnoted > UNNOTED_MAX:
            with suppress(OSError):
                content = json.dumps(notes, separators=(",", ":"))
                write_atomic(table / NOTES, content.encode(), durable=False)


def find_unfinished(root: str, table: str, run_id: str, *, any_state: bool = False) -> Item | None:
    """The newest run of a table with this `run_id` that did not finish; with `any_state` one that did, too.

    Left out are copies of runs that another machine began, and runs that a later one has gone on with in an
    item of its own. One whose run.json is damaged is passed over with a warning.
    """
    gone_on: set[str] = set()
    for index in newest_first(Path(root, LOG, table), run_id):
        item = Item(os.path.abspath(root), table, index, index.opened)
        content = read_run_file(item)
        if not content:
            file = os.path.join(item.folder(LOG), RUN_FILE)
            warn(f"{file} is damaged: if it is the run {run_id!r}, it is not continued")
        parent = content.get("parent")
        if isinstance(parent, dict) and parent.get("chain") is True:
            gone_on.add(str(parent.get("run")))
        if content.get("run_key") != run_id or (content.get("state") == "finished" and not any_state):
            continue
        if index.path not in gone_on and not os.path.exists(os.path.join(item.folder(LOG), FETCHED_MARK)):
            return item
    return None


def find_here(
    root: str,
    table: str,
    run_id: str,
    *,
    autostart: bool,
    any_state: bool = False,
    ends_s: float | None = None,
) -> tuple[Item | None, str]:
    """`find_unfinished`, once an agent has taken in a run of that name of which only the spool knows.

    `ends_s`: wait so long for a living process that writes the run. It may have finished, then or a moment
    ago: only what has been taken in says so. Where `ends_s` is None, `prepare` sees to all that.

    Returns:
        The run; and why one is left in the spool, empty where none is.

    Raises:
        StillWritingError: a living process writes it.
    """
    places, where = find_places(), (os.path.realpath(root), table, run_id)
    found = find_unfinished(root, table, run_id, any_state=any_state)
    if found is not None and ends_s is not None:
        streams = streams_of(places, found, read_run_file(found))
        await_ended(streams, ends_s)
        if not await_taken_in(places, streams, autostart=autostart):
            found = find_unfinished(root, table, run_id, any_state=any_state)
    if found is not None:
        return found, ""
    waiting = [
        stream
        for stream in all_streams(places)
        if (told := stream.opening) and (root_of(told), told.table, told.run_key) == where
    ]
    await_ended(waiting, ends_s or 0.0)
    late = await_taken_in(places, waiting, autostart=autostart)
    if late or not waiting:
        return None, late
    return find_unfinished(root, table, run_id, any_state=any_state), ""


def _days(folder: Path, levels: tuple[re.Pattern[str], ...], above: str = "") -> Iterator[str]:
    """Folders of days, newest first, as `YYYY/MM/DD`."""
    for name in _names(folder):
        if levels[0].match(name) is None:
            continue
        if len(levels) == 1:
            yield f"{above}{name}"
        else:
            yield from _days(folder / name, levels[1:], f"{above}{name}/")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []


def _run_id(path: str) -> tuple[str, bool] | None:
    """The id in a run.json, empty where it says none, and whether the file is whole; None without one."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = os.read(descriptor, MAX_RUN_FILE_BYTES)
        finally:
            os.close(descriptor)
        found = _RUN_KEY.findall(content)
        with suppress(ValueError):
            return str(json.loads(found[-1])) if found else "", content.rstrip().endswith(b"}")
        return "", False
    return None


def _read(table: Path) -> Notes:
    with suppress(OSError, ValueError):
        content = parse_json(read_small(table / NOTES, MAX_NOTES_BYTES))
        if isinstance(content, dict):
            return {str(day): names for day, names in content.items() if isinstance(names, dict)}
    return {}


class StillWritingError(RlaError):
    """A run that should be continued is still being written by a living process."""


@dataclass(frozen=True, slots=True)
class EarlierStream:
    """One stream in the spool and what its opening frame says; None where that cannot be read."""

    folder: Path
    opening: Opening | None


def streams_of(places: Places, item: Item, content: dict[str, Any]) -> list[EarlierStream]:
    """The streams of a run that are in the spool, oldest first.

    Args:
        places: where the spool is.
        item: the run, wherever its database lies now.
        content: its run.json; empty for a run that no agent has taken in yet.
    """
    named = {str(name) for name in content.get("streams") or ()}
    own = content.get("run_id")
    root = os.path.realpath(item.root)

    def is_of_run(stream: EarlierStream) -> bool:
        opening = stream.opening
        if stream.folder.name in named:
            return True
        if opening is None:
            return False
        where = root_of(opening), opening.table, opening.index
        return bool(own and opening.run == own) or where == (root, item.table, item.index.path)

    return [stream for stream in all_streams(places) if is_of_run(stream)]


def root_of(opening: Opening) -> str:
    """The data root that a stream writes into; links may lead to where it was moved since."""
    return os.path.realpath(opening.root)


def all_streams(places: Places) -> list[EarlierStream]:
    """All streams in the spool, oldest first; none where it cannot be read."""
    with suppress(OSError):
        folders = [places.spool / name for name in stream_names(places.spool)]
        return [EarlierStream(folder, stream_opening(folder)) for folder in folders]
    return []


def newest_epoch(content: dict[str, Any], streams: Iterable[EarlierStream]) -> int:
    """The epoch of a run's newest opening, by its run.json and by what waits in the spool; 0 for none."""
    known = [content.get("epoch"), *(stream.opening.epoch for stream in streams if stream.opening)]
    return max((epoch for epoch in known if isinstance(epoch, int)), default=0)


def await_taken_in(places: Places, streams: Sequence[EarlierStream], *, autostart: bool) -> str:
    """Wait until an agent took streams in to their ends, as long as there is one or one may be started.

    It waits TAKEN_IN_S at most.

    Args:
        places: where the agent is.
        streams: of writers that are gone.
        autostart: start an agent where none runs.

    Returns:
        Why that did not happen; empty when it did.

    Raises:
        StillWritingError: a writer lives.
    """
    waiting = [stream.folder for stream in streams]
    await_ended(streams, 0.0)
    if not any(map(os.path.isdir, waiting)):
        return ""
    if not agent_alive(places) and not (autostart and start_for(places, [one.opening for one in streams])):
        return f"no agent runs to take in what waits in {places.spool}; start one: rla-agent start --detach"
    deadline = time.monotonic() + TAKEN_IN_S
    while any(map(os.path.isdir, waiting)):
        if time.monotonic() > deadline:
            return f"the agent has not stored what it left within {TAKEN_IN_S:g} s; see: rla-agent status"
        time.sleep(POLL_S)
    return ""


def start_for(places: Places, openings: Iterable[Opening | None]) -> bool:
    """Start an agent for streams of earlier runs, with the configuration and the secrets of theirs.

    Returns:
        See `start_agent`.
    """
    configs = [Path(one.config) for one in openings if one is not None and one.config is not None]
    return start_agent(places, configs[0] if configs else None, password_variables(configs))


def await_ended(streams: Sequence[EarlierStream], ends_s: float) -> None:
    """Wait until no living process writes these streams.

    Args:
        streams: of a run.
        ends_s: so long at most: of a job that was started again, the former process may be on its way out.

    Raises:
        StillWritingError: a writer lives; at once where it is this process.
    """
    waited, deadline = False, time.monotonic() + ends_s
    for stream in streams:
        if _is_open_here(stream.folder / LOCK_NAME):
            raise StillWritingError(
                "this process itself still writes the run; close it first: exp_manager.close()"
            )
        while writer_alive(stream.folder):
            told = stream.opening
            who = "unknown" if told is None else f"process {told.pid} on {told.host}"
            if time.monotonic() >= deadline:
                raise StillWritingError(
                    f"the run is still being written by a living process ({who}); end that one first"
                )
            if not waited:
                warn(f"the run is still being written by {who}; waiting up to {ends_s:g} s for its end")
            waited = True
            time.sleep(POLL_S)


def _is_open_here(path: Path) -> bool:
    """Whether this process has a file open: to close another descriptor of it would drop its lock."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), found):
                return True
    return False
