"""One run as one row: what `rla ls` and `Database.runs` show of it, read from its files.

Nothing here raises for a broken file: the row then carries a problem that names the file, other than an
environment.json, of which a row shows a few words. The
state comes from run.json; runs of the original have none and no state.

How long a run took (`ran_s`) is the time in which a process of it ran: to its end where that is
known (`finished`, `failed`), else to its last row, since a death may be noticed much later. What a
resumed run ran before counts, the time until somebody resumed it does not. Without run.json
(the original's), and for runs resumed before run.json told of it, it is the last row less the start.

The *likely metric* of a run, the one that people most likely want to see, is the first column of
progress.csv, other than times, that holds numbers and whose name has one of `LIKELY_WORDS`, the earlier
word before the later; without such a name the first column with numbers. Names of a spread (`return_std`,
`max_return`) come after the others. Of several runs it is the one that most of them have; where that is a
tie, the newest run's.

**What runs now.** The agent writes run.json at each change of state and every 60 s. A file that says
`running` and was not written for `LIVE_S` seconds is shown as `unknown`, unless this machine knows better.
Two places are asked: the agent of this user, on its control socket, and, where none answers, the locks of the
run's streams in the spool, which a living writer holds. Runs of other machines are in neither.

While no agent serves, nobody keeps run.json true. Then a stream of the run in this machine's spool
tells: a run that has no run.json is `waiting`, one that is said to run, with no living writer, is
`silent`. Both are words for the reader; nothing is written, the next agent finds out what happened.
Nobody else pays for it: on machines without an agent there is neither socket nor spool.

The master of a fleet has a status file of each machine in `.rla-fleet/` of its data root.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.filesystem.plain_files import MAX_SMALL_BYTES, open_plain, read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.contract.run_file import CLOSED_STATES, LIVE_STATES, RUN_FILE, ran_s, seconds
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import stream_opening
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import writer_alive
from rla_client.contract.text.bounded_parsing import MAX_VALUES, parse_json
from rla_client.database.csv_table import PROGRESS_FILE, read_tail
from rla_client.database.environment import ENVIRONMENT_FILE, TOLD_HERE, read_told
from rla_client.database.tree import chain_of, link_of, short_name, tracked_texts
from rla_client.run.parameters.hyper_params import HyperParams, read_hyper_params

LIVE_S = 180.0
ASK_TIMEOUT_S = 0.5  # an agent answers within milliseconds; a busy one is not waited for
TAKE_IN_S = 3.0  # a run that has just ended is in its files after one
MAX_STREAMS = 1000  # the newest so many are looked at, 0.1 s; older ones wait for an agent as well, unnamed
MAX_NAME_CHARS = 1000  # of a column or a parameter; tags of frameworks have some 200
TORN_LINES = 100  # of a text that is being written
FLEET_FOLDER = ".rla-fleet"
MAX_STATUS_BYTES = 256 << 10  # of one machine, as its agent writes it
MAX_MACHINES = 500
MAX_RUNS = 200  # of one machine
MAX_TIME = 1e11  # Unix seconds: the year 5138
MAX_CACHED_CHARS = 64 << 10  # of hyper-parameters that are kept parsed
NOTE_FILE = "note.json"
UNKNOWN = "unknown"
SILENT = "silent"  # run.json says running, but its process is gone and no agent serves to say how it ended
WAITING = "waiting"  # no run.json yet: its rows wait in this machine's spool, and no agent serves
TOLD = (  # fields of run.json that a record has no place of its own for
    "reason", "exit_code", "signal", "closed", "last_row", "rows", "lost", "lost_others", "parent",
    "user", "pid", "run_id",
)  # fmt: skip
ALL_TOLD = (*TOLD, *TOLD_HERE)  # and of environment.json
MOMENTS = frozenset({"time", "closed", "last_row"})  # fields that are Unix seconds
STATES = (*sorted(LIVE_STATES), *sorted(CLOSED_STATES), "killed", "removed", UNKNOWN, SILENT, WAITING)
FIELDS = (
    "index", "run", "table", "time", "host", "state", "time_step", "duration", "tags", "note", "kinds",
    "problems", "likely", "likely_value",
)  # fmt: skip
ALIASES = {  # what `ls`, its JSON, `show --json` and `Database.runs` call a field, where no run has it itself
    "step": "time_step",
    "time-step": "time_step",
    "took": "duration",
    "duration_s": "duration",
    "began": "time",
    "opened": "time",
    "last": "last_row",
    "items": "kinds",
    "metric": "likely",
    "value": "likely_value",
    **{name: name for name in ALL_TOLD},
}
CLOCKS = frozenset({"time-step", "timestamp"})  # columns of each row that say when, not what
_TIMES = ("time", "_runtime")  # begin the names of further such columns; the latter is wandb's
LIKELY_WORDS = ("return", "reward", "rew", "score", "success", "win", "accuracy", "loss")
_SHORT_WORD = 3  # letters; such a word counts only alone: `window` is no win
_SPREAD = frozenset({"std", "stddev", "var", "min", "max", "len", "length"})
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True, slots=True)
class Record:
    """One run.

    Attributes:
        table: task table name.
        index: `YYYY/MM/DD/<name>`.
        kinds: which kinds have an item of it.
        opened: start, Unix seconds; 0 where nothing says it.
        host: machine or address.
        state: as in run.json; None without that file.
        updated: when run.json was last written, Unix seconds.
        time_step: last time-step in progress.csv; without rows that of the checkpoint that it continues from.
        duration_s: how long it ran, see `ran_s`; of a chain all its items.
        hyper_json: hyper-parameters as JSON text; `hyper` gives them nested as they were.
        metrics_json: last value of each column of progress.csv as JSON text; `metrics` parses it.
        tags: from note.json.
        note: from note.json.
        problems: one line of text per file that could not be read.
        parent: index of the run that this one continues (see `chain_of`), empty without one.
        tracked_json: `tracked_texts` of its index as JSON text, only where a value holds an `&`.
        told_json: what else run.json and environment.json say, see `told`.
        likely: the metric that people most likely want to see (see `likely_metric`), empty without one.
        likely_text: its last value, as `repr` of a float.
    """

    table: str
    index: str
    kinds: tuple[str, ...] = ()
    opened: float = 0.0
    host: str = ""
    state: str | None = None
    updated: float | None = None
    time_step: float | None = None
    duration_s: float | None = None
    hyper_json: str = "{}"
    metrics_json: str = "{}"
    tags: tuple[str, ...] = ()
    note: str = ""
    problems: tuple[str, ...] = ()
    parent: str = ""
    tracked_json: str = ""
    told_json: str = "{}"
    likely: str = ""
    likely_text: str = ""

    @property
    def tracked(self) -> Mapping[str, str]:
        """The tracked hyper-parameters as the index spells them."""
        return _parse(self.tracked_json) if self.tracked_json else tracked_texts(self.index)

    @property
    def hyper(self) -> HyperParams:
        """Hyper-parameters; shared between looks, so not to be changed."""
        return _parse(self.hyper_json)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Last value of each column of progress.csv; not to be changed."""
        return _parse(self.metrics_json)

    @property
    def told(self) -> Mapping[str, Any]:
        """What else run.json and environment.json say, under the names of `ALL_TOLD`; not to be changed."""
        return _parse(self.told_json)

    @property
    def likely_value(self) -> float | None:
        """Last value of the likely metric."""
        return float(self.likely_text) if self.likely_text else None

    @property
    def date(self) -> str:
        """`YYYY/MM/DD/HH-MM-SS-ffffff`, the short name of the run."""
        return short_name(self.index)

    def shown_state(self, now: float) -> str:
        """The state, `unknown` without one, and when a running one has not been heard of for `LIVE_S`."""
        if self.state in LIVE_STATES and self.updated is not None and now - self.updated > LIVE_S:
            return UNKNOWN
        return self.state or UNKNOWN

    def is_live(self, now: float) -> bool:
        """Whether somebody writes it, as far as its files say."""
        return self.shown_state(now) in LIVE_STATES


class RowView(Mapping[str, Any]):
    """A record by field, hyper-parameter and metric names, then aliases, for filters and sorting."""

    __slots__ = ("_now", "_record")

    def __init__(self, record: Record, now: float) -> None:
        self._record = record
        self._now = now

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        record = self._record
        field = self.field(name)
        if field in _FIELD_OF:
            return _FIELD_OF[field](record, self._now)
        if field is not None:
            return record.told.get(field)
        try:
            return record.hyper.dotted(name)
        except KeyError:
            return record.metrics[name]

    def field(self, name: str) -> str | None:
        """The field that a name means of this run; None for a hyper-parameter or a metric."""
        if name in _FIELD_OF:
            return name
        if name not in ALIASES or name in self._record.metrics:
            return None
        try:
            self._record.hyper.dotted(name)
        except KeyError:
            return ALIASES[name]
        return None

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(FIELDS), **self._record.hyper.flat(), **self._record.metrics})

    def __len__(self) -> int:
        return len(list(iter(self)))


_FIELD_OF: dict[str, Callable[[Record, float], Any]] = {
    "index": lambda record, _: record.index,
    "run": lambda record, _: record.date,
    "table": lambda record, _: record.table,
    "time": lambda record, _: record.opened,
    "host": lambda record, _: record.host,
    "state": lambda record, now: record.shown_state(now),
    "time_step": lambda record, _: record.time_step,
    "duration": lambda record, _: record.duration_s,
    "tags": lambda record, _: list(record.tags),
    "note": lambda record, _: record.note,
    "kinds": lambda record, _: list(record.kinds),
    "likely": lambda record, _: record.likely or None,
    "likely_value": lambda record, _: record.likely_value,
    "problems": lambda record, _: list(record.problems),
}


def read_json(
    path: str | os.PathLike[str], max_bytes: int = MAX_SMALL_BYTES, max_values: int = MAX_VALUES
) -> dict[str, Any] | None:
    """A JSON object, None when the file is not there.

    Raises:
        BrokenFileError: it is not a file, not a JSON object, or larger than anybody writes one.
    """
    try:
        data = read_small(path, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = parse_json(data, max_values)
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), f"no valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise BrokenFileError(os.fspath(path), "it holds no JSON object")
    return found


def read_record(data_root: Path, table: str, index: str, kinds: tuple[str, ...]) -> Record:
    """Read everything that a row shows of one run; see the module's text on problems."""
    folder = f"{data_root}/{LOG}/{table}/{index}"
    problems: list[str] = []
    run = _guarded(f"{folder}/{RUN_FILE}", problems)
    note = _guarded(f"{folder}/{NOTE_FILE}", problems)
    surroundings = read_told(f"{folder}/{ENVIRONMENT_FILE}")
    hyper, broken = read_hyper_params(data_root, table, index)
    problems += broken
    hyper_json = to_json(hyper)
    if len(hyper_json) > MAX_NAME_CHARS:  # else no name is longer
        flat = hyper.flat()
        found = _shown_names(flat, f"parameters of {table}/{index}", problems)
        if len(found) < len(flat):
            hyper = HyperParams(found)
            hyper_json = to_json(hyper)
    metrics: dict[str, Any] = {}
    try:
        ended = run.get("state") not in LIVE_STATES  # the table of another one is read again and again
        tail = read_tail(f"{folder}/{PROGRESS_FILE}", all_quotes=ended)
        metrics = _shown_names(tail.last, f"{folder}/{PROGRESS_FILE}", problems)
        if tail.quoted_lines and (ended or tail.quoted_lines > TORN_LINES):
            behind = f"the {tail.quoted_lines} lines behind it are one cell"
            problems.append(f"{folder}/{PROGRESS_FILE}: a quote is never closed: {behind}")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (DatabaseError, OSError) as error:
        problems.append(str(error))
    likely = likely_metric(numeric(metrics))
    parsed = RunIndex.parse(index)
    opened = _moment(run.get("opened"))
    if opened is None:
        opened = start_seconds(parsed)
    own_s = ran_s({**run, "opened": opened}, seconds(metrics.get(TIMESTAMP)))
    time_step = seconds(metrics.get(TIME_STEP))
    host = run.get("host") or (parsed.ip if parsed else "")
    tags = note.get("tags")
    link = link_of(run, table)
    if time_step is None:
        time_step = seconds(run.get("time_step"))
    if time_step is None and link is not None:
        time_step = link.time_step  # of its checkpoint: there was nothing left to do
    return Record(
        table=table,
        index=index,
        kinds=kinds,
        opened=opened,
        host=str(host),
        state=str(run["state"]) if isinstance(run.get("state"), str) else None,
        updated=_moment(run.get("updated")),
        time_step=time_step,
        duration_s=own_s if link is None else _chain_duration(data_root, table, index, own_s),
        hyper_json=hyper_json,
        metrics_json=to_json(metrics),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
        note=str(note.get("note") or ""),
        problems=tuple(problems),
        parent=link.index if link is not None else "",
        tracked_json=_unlike_split(index, hyper),
        told_json=to_json({**_told(run), **surroundings}),
        likely=likely or "",
        likely_text=repr(to_float(metrics[likely])) if likely else "",
    )


def to_float(value: float) -> float:
    """A number as a float; one beyond all floats is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _told(run: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: run[name] for name in TOLD if isinstance(run.get(name), str | int | float)}
    parent = run.get("parent")
    if isinstance(parent, dict):
        found["parent"] = f"{parent.get('run')} at {parent.get('time_step')}"
    return {
        name: value
        for name, value in found.items()
        if value != "" and (name not in MOMENTS or _moment(value))
    }


def _shown_names(values: Mapping[str, Any], source: str, problems: list[str]) -> dict[str, Any]:
    """Values whose names people can read; a name of megabytes would fill each list and each page."""
    found = {name: value for name, value in values.items() if len(name) <= MAX_NAME_CHARS}
    if long := [name for name in values if len(name) > MAX_NAME_CHARS]:
        names = f"{len(long)} name(s) of more than {MAX_NAME_CHARS} characters are left out"
        problems.append(f"{source}: {names}, the first {long[0][:40]!r}…")
    return found


def _guarded(path: str, problems: list[str]) -> dict[str, Any]:
    try:
        return read_json(path) or {}
    except (DatabaseError, OSError) as error:
        problems.append(str(error))
        return {}


def _moment(value: object) -> float | None:
    """Unix seconds that a calendar has; None for anything else."""
    found = seconds(value)
    return found if found is not None and 0 <= found < MAX_TIME else None


def start_seconds(parsed: RunIndex | None) -> float:
    """Start of a run by its index (local time), 0 when the index names no date that exists."""
    if parsed is None:
        return 0.0
    try:
        return parsed.opened.timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _chain_duration(data_root: Path, table: str, index: str, own: float | None) -> float:
    """Duration of a run together with those that it continues."""
    total = own or 0.0
    for link in chain_of(data_root, table, index)[:-1]:
        earlier = _guarded(f"{data_root}/{LOG}/{table}/{link.index}/{RUN_FILE}", [])
        total += ran_s(earlier) or 0.0
    return total


def likely_of(records: Sequence[Record]) -> str | None:
    """The likely metric of several runs, oldest first; None where none has rows with numbers."""
    counts = Counter(record.likely for record in reversed(records) if record.likely)
    return counts.most_common(1)[0][0] if counts else None  # of equals the first counted, the newest


def likely_metric(names: Iterable[str]) -> str | None:
    """The one of some columns with numbers that people most likely want to see; see the module's text."""
    best: tuple[tuple[int, bool], str] | None = None
    for name in names:
        if name in CLOCKS or name.startswith(_TIMES):
            continue
        pieces = [piece.lower() for piece in _PIECES.findall(name)]
        rank = (_word_place(pieces), not _SPREAD.isdisjoint(pieces))
        if best is None or rank < best[0]:
            best = rank, name
    return best[1] if best else None


def _word_place(pieces: Sequence[str]) -> int:
    for place, word in enumerate(LIKELY_WORDS):
        if word in pieces or (len(word) > _SHORT_WORD and any(word in piece for piece in pieces)):
            return place
    return len(LIKELY_WORDS)


def numeric(last_values: Mapping[str, object]) -> list[str]:
    """The columns whose last value is a number."""
    return [
        name
        for name, value in last_values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _unlike_split(index: str, hyper: HyperParams) -> str:
    if index.count("&") < 2:  # noqa: PLR2004 - the first begins the info
        return ""
    found = tracked_texts(index, hyper)
    return to_json(found) if found != tracked_texts(index) else ""


def to_json(value: object) -> str:
    """JSON text of plain data; what is none (dates) becomes text."""
    return json.dumps(value, default=str, separators=(",", ":"))


def _parse(text: str) -> HyperParams:
    return _kept(text) if len(text) <= MAX_CACHED_CHARS else _parsed(text)


def _parsed(text: str) -> HyperParams:
    found = json.loads(text, object_hook=HyperParams)
    return found if isinstance(found, HyperParams) else HyperParams()


_kept = lru_cache(maxsize=1 << 15)(_parsed)  # 15,000 runs, each seen several times by a filter and a table


def clock() -> float:
    """Unix seconds; the one place where the readers of a database look at the clock."""
    return time.time()


def with_live_states(data_root: Path, records: Sequence[Record], now: float) -> list[Record]:
    """The same records, those that this machine knows better with the state that it knows of."""
    silent, open_ones = [], []
    for record in records:
        if record.state in LIVE_STATES:
            open_ones.append(record)
            if record.shown_state(now) == UNKNOWN:  # not an imported one
                silent.append(record)
        elif record.state is None and LOG in record.kinds:
            open_ones.append(record)
    if not open_ones:
        return list(records)
    known = known_states(data_root, silent) if silent else {}
    changes: dict[tuple[str, str], dict[str, Any]] = {
        run: {"state": state} for run, state in _without_agent(data_root, open_ones).items()
    }
    changes |= {run: {"state": state, "updated": now} for run, state in known.items()}
    return [
        replace(record, **changes[run]) if (run := (record.table, record.index)) in changes else record
        for record in records
    ]


def _without_agent(data_root: Path, records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(table, index) → `waiting` or `silent`, where no agent serves and this machine's spool tells."""
    streams = _unserved_streams(data_root)
    found = {}
    for record in records if streams else ():
        mine = streams.get(f"{record.table}/{record.index}")
        if mine is not None and record.state is None:
            found[record.table, record.index] = WAITING
        elif mine is not None and not any(map(writer_alive, mine)):
            found[record.table, record.index] = SILENT
    return found


def written_unserved(data_root: Path, runs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those (table, index) that a living process writes while no agent serves, run.json or not."""
    streams = _unserved_streams(data_root)
    return {run for run in runs if any(map(writer_alive, streams.get("/".join(run), ())))}


def waiting_in_spool(data_root: Path, runs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those (table, index) of which this machine's spool may hold rows, after TAKE_IN_S for an agent."""
    from rla_client.contract.agent.agent_process import agent_alive

    places = find_places()
    asked, until = set(runs), time.monotonic() + TAKE_IN_S
    while True:
        streams = _streams(places, data_root) if asked and places.spool.is_dir() else {}
        found = {run for run in asked if "/".join(run) in streams}
        if not found or not agent_alive(places) or time.monotonic() > until:
            return found
        time.sleep(0.05)


def _unserved_streams(data_root: Path) -> dict[str, list[Path]]:
    """`<table>/<index>` → its streams in this machine's spool; empty while an agent serves."""
    places = find_places()
    if not places.spool.is_dir():
        return {}
    from rla_client.contract.agent.agent_process import agent_alive

    return {} if agent_alive(places) else _streams(places, data_root, MAX_STREAMS)


def _streams(places: Places, data_root: Path, most: int = 0) -> dict[str, list[Path]]:
    """`<table>/<index>` → its streams in this machine's spool, of the newest `most` (0: of all)."""
    base = os.path.realpath(data_root / LOG) + os.sep
    found: dict[str, list[Path]] = {}
    for name in stream_names(places.spool)[-most:]:
        path = log_folder(places.spool / name)
        if path is not None and path.startswith(base):
            found.setdefault(path.removeprefix(base), []).append(places.spool / name)
    return found


def known_states(data_root: Path, silent: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(table, index) → state, for those of some runs that the agent or the spool of this machine knows."""
    places = find_places()
    told = _ask_agent(places) if places.lock.exists() else None
    found = {}
    for record in silent:
        folder = os.path.realpath(f"{data_root}/{LOG}/{record.table}/{record.index}")
        if told is not None and folder in told:
            found[record.table, record.index] = told[folder]
        elif told is None and places.spool.is_dir() and _writer_lives(folder, places.spool):
            found[record.table, record.index] = "running"
    return {run: state for run, state in found.items() if state in LIVE_STATES}


def _ask_agent(places: Places) -> dict[str, str] | None:
    """Log folder → state of the runs that the agent knows; None when none answers."""
    from rla_client.contract.agent.agent_process import agent_alive
    from rla_client.contract.agent.dealer import ask

    if not agent_alive(places):
        return None
    answer = ask(places.control_socket, {}, ASK_TIMEOUT_S)
    if answer is None:
        return None
    return {os.path.realpath(run["log_folder"]): str(run["state"]) for run in answer.get("runs", [])}


def _writer_lives(folder: str, spool: Path) -> bool:
    with suppress(BrokenFileError):
        streams = (read_json(f"{folder}/{RUN_FILE}") or {}).get("streams")
        if isinstance(streams, list):
            names = [name for name in streams if isinstance(name, str) and os.sep not in name]
            return any(writer_alive(spool / name) for name in names if (spool / name).is_dir())
    return False


def log_folder(stream: Path) -> str | None:
    """Log folder of the run of a stream, without links; None where that cannot be read."""
    opening = stream_opening(stream)
    return None if opening is None else os.path.realpath(opening.log_folder)


def fleet_files(root: Path) -> list[dict[str, Any]]:
    """The machines, see `described`; `age_s` counts from their files, and broken files are left out."""
    found = []
    try:
        with held_folder(root, FLEET_FOLDER) as folder:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
            for name in names[:MAX_MACHINES]:
                with suppress(OSError, ValueError, BrokenFileError), open_plain(folder / name) as file:
                    status = parse_json(file.read(MAX_STATUS_BYTES))
                    age_s = max(0.0, clock() - os.fstat(file.fileno()).st_mtime)
                    if isinstance(status, dict):
                        found.append(described({**status, "age_s": age_s}))
    except OSError:
        return []  # it is not a master
    return told_apart(found)


def told_apart(machines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of machines with one host name each is shown with what tells it from the others."""
    hosts = Counter(one["host"] for one in machines)
    return [
        {**one, "host": f"{one['host']} ({one['machine']})"}
        if hosts[one["host"]] > 1 and one["machine"]
        else one
        for one in machines
    ]


def described(status: dict[str, Any]) -> dict[str, Any]:
    """`host`, `machine`, `version`, `age_s`, `backlog` and `runs` of a status, whatever is wrong with it."""
    runs, age_s = status.get("runs"), status.get("age_s")
    return {
        "host": str(status.get("host"))[:200],
        "machine": str(status.get("machine") or "")[:8],
        "version": str(status.get("version"))[:50],
        "age_s": age_s if isinstance(age_s, int | float) else 0.0,
        "backlog": status.get("backlog"),
        "runs": [run for run in runs if isinstance(run, dict)][:MAX_RUNS] if isinstance(runs, list) else [],
    }
