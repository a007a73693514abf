"""The opening frame of a stream.

It names a stream's run, the folders of its files, and the settings for the agent. One class writes and reads
it. The client makes an `Opening` and sends `to_fields`; the agent, other ranks, and resumed runs read it by
`from_fields`, which refuses everything that no client writes: a name that is not a safe relative path, two
outputs in one file, numbers out of range. Fields may be added; a reader ignores unknown ones, and those with
a default may be missing. The frame begins each segment, so that one whose neighbours are gone can still be
attributed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rla_client.contract.errors import ArgumentError, RemoteProtocolError, RlaError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.layout import ALWAYS_OUTPUTS, CONSOLE, OUTPUT_NAMES, PRINTED, SINKS, TAKEN_NAMES
from rla_client.contract.run_part import MACHINE
from rla_client.contract.safe_names import check_relative
from rla_client.contract.spool.protocol import (
    MAX_FRAME_BYTES,
    Frame,
    FrameKind,
    encode_frame,
    frame_at,
    pack,
    unpack,
)
from rla_client.contract.spool.segments import (
    OPENING_BYTES,
    STREAM_NAME,
    read_at,
    segment_numbers,
    segment_path,
)
from rla_client.contract.text.number_parsing import INT64, MAX_TIME_S, parse_moment, parse_number, parse_uint

LAUNCH_VARIABLE = "RLA_LAUNCH"  # set by `rla-agent run`: which runs its command opened
CONSOLE_VARIABLE = "RLA_CONSOLE_KEPT"  # set by `rla-agent run` where it keeps what its command prints
MAX_PID = 1 << 31
MAX_NAME_BYTES = 255
MAX_RUN_KEY = 200
MAX_AFTER = 1000  # earlier streams of one run in one spool
MAX_PARENT_FIELDS, MAX_PARENT_TEXT = 16, 1000
_FAULTS = (KeyError, TypeError, ValueError, OverflowError, AttributeError, ArgumentError)


class Earlier(NamedTuple):
    """Earlier part of a run, for an agent that does not have it (any more).

    Attributes:
        began: Unix seconds; None where unknown.
        ran_s: seconds that it ran.
    """

    began: float | None = None
    ran_s: float = 0.0

    def to_fields(self) -> dict[str, Any]:
        """Plain data; empty where nothing is known."""
        return {} if self.began is None else {"began": self.began, "ran_s": self.ran_s}

    @classmethod
    def from_fields(cls, raw: object) -> Earlier:
        """Parse plain data; invalid numbers count as unknown."""
        if not isinstance(raw, Mapping):
            return cls()
        began, ran_s = (
            value if isinstance(value, int | float) and abs(value) < MAX_TIME_S else None
            for value in (raw.get("began"), raw.get("ran_s"))
        )
        return cls(began, max(ran_s or 0.0, 0.0))


class Continuation(NamedTuple):
    """How much of earlier files counts, for a stream that continues in them.

    Attributes:
        rows: of progress.csv and progress.json; None keeps all, unless `time_step` cuts.
        time_step: without `rows`, keep rows up to this time-step; without `samples`, likewise samples.
        event_file: the event file to cut; None cuts none.
        event_size: to how many bytes.
        abandoned: folder below the log folder for data that is cut off, or replaced by a fork.
        after: streams of this spool whose records come before those of this one.
        staged: folder below the log folder whose files take their places when this stream begins: a
            fork's copy of the earlier run. Empty without one.
        earlier: of the run that continues.
        samples: how many of them; None keeps all, unless `time_step` cuts.
        saved: Unix seconds; `time_step` cuts only data recorded after that.
    """

    rows: int | None = None
    time_step: float | None = None
    event_file: str | None = None
    event_size: int = 0
    abandoned: str = "abandoned-1"
    after: tuple[str, ...] = ()
    staged: str = ""
    earlier: Earlier = Earlier()
    samples: int | None = None
    saved: float = -math.inf

    def to_fields(self) -> dict[str, Any]:
        """Plain data; `earlier` lies among the others."""
        own = {**self._asdict(), "after": list(self.after)}
        del own["earlier"]
        if self.saved == -math.inf:  # for which JSON has no word
            del own["saved"]
        return {**own, **self.earlier.to_fields()}

    @classmethod
    def from_fields(cls, raw: Any) -> Continuation | None:  # noqa: ANN401 - foreign data
        """None for a run of its own.

        Raises:
            RemoteProtocolError: it is not what a client writes.
        """
        if raw is None:
            return None
        try:
            rows, step, event = raw.get("rows"), raw.get("time_step"), raw.get("event_file")
            samples = raw.get("samples")
            return cls(
                None if rows is None else parse_uint(rows, INT64),
                None if step is None else parse_number(step),
                None if event is None else check_relative(str(event))[0],
                parse_uint(raw.get("event_size", 0), INT64),
                check_relative(str(raw.get("abandoned", "abandoned-1")))[0],
                tuple(str(name) for name in raw.get("after", ())[:MAX_AFTER] if STREAM_NAME.match(str(name))),
                _staged(raw.get("staged", "")),
                Earlier.from_fields(raw),
                None if samples is None else parse_uint(samples, INT64),
                parse_number(raw.get("saved", -math.inf)),
            )
        except _FAULTS as error:
            raise RemoteProtocolError(f"continuation is not what a client writes: {error}") from error


class Opening(NamedTuple):
    """Description of a stream.

    Attributes:
        run: identity of the run, the same for all its streams.
        epoch: nanoseconds; the later of two openings of a run has the higher one.
        opened: Unix seconds.
        root: data root, absolute; `root_device` and `root_inode` tell another one of that name apart.
        folders: kind → folder below `root`; `log` is there.
        sinks: outputs of rows.
        names: output → file name in the log folder.
        primary: the run's own process, not one of its workers.
        label: of a worker's outputs: `progress.<label>.csv`.
        pid: of the writer; `host`, `user` and `python`, its interpreter, likewise.
        client: its release.
        table: task table; empty for a plain folder. `index`: of the run.
        config: path of the rla_config.yaml; None without one.
        offline: the run stays on this machine.
        master: it is written on the master itself.
        replicate: the project sends items to a master.
        run_key: the `run_id` that a user gave it.
        launch: of `rla-agent run`, which recognizes its runs by it.
        parent: of a fork or chain: the run it comes from, as run.json shows it.
        continues: the earlier files that it continues in; None for a run of its own.
        earlier: of a run that is opened again in files of its own.
        stall_s: the project's own `AGENT.stall_s`; None: the machine's. `sample_interval_s` likewise.
        part: this machine's name, where another one has the run's main process (`run_part`); else empty.
        ends_part: of a part: the end of this process is the end of its part; False for its workers.
        segment: number of the segment that this frame begins.
        rows: of the stream before this segment.
        lost: number of lost records of the stream so far.
        spool: folder in which the stream was made, to recognize a copy; empty if it has no readable name.
    """

    run: str
    epoch: int
    opened: float
    root: str
    root_device: int
    root_inode: int
    folders: Mapping[str, str]
    sinks: frozenset[str]
    names: Mapping[str, str]
    primary: bool
    label: str
    pid: int
    host: str
    user: str
    python: str
    client: str
    table: str = ""
    index: str = ""  # type: ignore[assignment] # a tuple has a method of this name, which nobody needs here
    config: str | None = None
    offline: bool = False
    master: bool = False
    replicate: bool = True
    run_key: str = ""
    launch: str = ""
    parent: Mapping[str, Any] | None = None
    continues: Continuation | None = None
    earlier: Earlier = Earlier()
    stall_s: float | None = None
    sample_interval_s: float | None = None
    part: str = ""
    ends_part: bool = False
    segment: int = 1
    rows: int = 0
    lost: int = 0
    spool: str = ""

    @property
    def log_folder(self) -> str:
        """Absolute path of the folder of the run's rows and text."""
        return self.folder("log")

    @property
    def title(self) -> str:
        """Name of the run in messages."""
        return f"{self.table}/{self.index}" if self.table else self.root

    @property
    def outputs(self) -> frozenset[str]:
        """All outputs of the stream: the chosen ones, and those of all streams."""
        return _outputs(self.sinks)

    def folder(self, kind: str) -> str:
        """Absolute path of the item's folder of a kind.

        Raises:
            KeyError: the run has none of this kind.
        """
        return os.path.normpath(os.path.join(self.root, self.folders[kind]))

    def output_path(self, name: str) -> str:
        """Path of an output below the log folder."""
        return labelled(self.names.get(name, OUTPUT_NAMES[name]), self.label)

    def frame(self, segment: int, rows: int, lost: int) -> bytes:
        """The frame that begins a segment."""
        content = {**self.to_fields(), "segment": segment, "rows": rows, "lost": lost}
        return encode_frame(FrameKind.OPEN, pack(content))

    def of_spool(self, spool: Path) -> Opening:
        """The opening of a stream that is made in this folder."""
        path = os.path.realpath(spool)
        with suppress(UnicodeEncodeError):
            path.encode()
            return self._replace(spool=path)
        return self

    def to_fields(self) -> dict[str, Any]:
        """Plain data, for a frame or JSON; what is not set is left out."""
        found = self._asdict()
        found |= {"folders": dict(self.folders), "sinks": sorted(self.sinks), "names": dict(self.names)}
        found["continues"] = None if self.continues is None else self.continues.to_fields()
        found["earlier"] = self.earlier.to_fields() or None
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_fields(cls, raw: Mapping[str, Any]) -> Opening:
        """Check what another process wrote.

        Raises:
            RemoteProtocolError: something is missing, of the wrong type, or an unsafe name.
        """
        try:
            folders = {str(kind): _folder(path) for kind, path in raw["folders"].items()}
            names = {str(output): _name(name) for output, name in raw["names"].items()}
            label = str(raw["label"])
            if label:
                _name(label)
            sinks = frozenset(name for name in raw["sinks"] if name in (*SINKS, CONSOLE)) - PRINTED
            _check_places(_outputs(sinks), names, label)
            return cls(
                run=_name(raw["run"]),
                epoch=parse_uint(raw["epoch"]),
                opened=parse_moment(raw["opened"]),
                root=_root(raw["root"], folders),
                root_device=parse_uint(raw["root_device"]),
                root_inode=parse_uint(raw["root_inode"]),
                folders=folders,
                sinks=sinks,
                names=names,
                primary=bool(raw["primary"]),
                label=label,
                pid=parse_uint(raw["pid"], MAX_PID),
                **{name: str(raw[name]) for name in ("host", "user", "python", "client")},
                **{name: str(raw.get(name, "")) for name in ("table", "index", "launch")},
                run_key=str(raw.get("run_key", ""))[:MAX_RUN_KEY],
                config=_config(raw.get("config")),
                offline=bool(raw.get("offline", False)),
                master=bool(raw.get("master", False)),
                replicate=raw.get("replicate", True) is not False,
                parent=_parent(raw.get("parent")),
                continues=Continuation.from_fields(raw.get("continues")),
                earlier=Earlier.from_fields(raw.get("earlier")),
                stall_s=_seconds(raw.get("stall_s")),
                sample_interval_s=_seconds(raw.get("sample_interval_s")),
                part=_part(raw.get("part", "")),
                ends_part=bool(raw.get("ends_part", False)),
                segment=parse_uint(raw.get("segment", 1)),
                rows=parse_uint(raw.get("rows", 0)),
                lost=parse_uint(raw.get("lost", 0)),
                spool=_config(raw.get("spool")) or "",
            )
        except _FAULTS as error:
            raise RemoteProtocolError(f"opening frame is not what a client writes: {error!r}") from error


def _outputs(sinks: frozenset[str]) -> frozenset[str]:
    return frozenset((CONSOLE,)) if CONSOLE in sinks else sinks.union(ALWAYS_OUTPUTS)


def labelled(name: str, label: str) -> str:
    """`progress.csv` of a worker stream is `progress.<label>.csv`."""
    if not label:
        return name
    stem, ending = os.path.splitext(name)
    return f"{stem}.{label}{ending}"


def _root(raw: object, folders: Mapping[str, str]) -> str:
    root = str(raw)
    if not os.path.isabs(root) or "\0" in root or "log" not in folders:
        raise ArgumentError(f"data root {root!r} is not an absolute path, or there is no log folder")
    return root


def _config(raw: object) -> str | None:
    """A path; no file has a zero byte in its name."""
    return None if raw is None or "\0" in str(raw) else str(raw)


def _folder(path: object) -> str:
    text = str(path)
    if text != ".":
        check_relative(text, what="folder")
    return text


def _name(name: object) -> str:
    text = str(name)
    if len(check_relative(text)) != 1:
        raise ArgumentError(f"{text!r} is more than one path component")
    return text


def _part(raw: object) -> str:
    """A machine's name, or nothing; it becomes part of file names."""
    if not raw or MACHINE.fullmatch(str(raw)):
        return str(raw)
    raise ArgumentError(f"{str(raw)!r:.100} is no name of a machine")


def _seconds(raw: object) -> float | None:
    return float(raw) if isinstance(raw, int | float) and 0 <= raw < MAX_TIME_S else None


def _parent(raw: object) -> dict[str, Any] | None:
    """A few plain values."""
    if not isinstance(raw, Mapping):
        return None
    plain = {str(name)[:40]: value for name, value in list(raw.items())[:MAX_PARENT_FIELDS]}
    return {
        name: value[:MAX_PARENT_TEXT] if isinstance(value, str) else value
        for name, value in plain.items()
        if value is None or isinstance(value, str | bool | int | float)
    }


def _staged(raw: object) -> str:
    """The folder of a fork's copy; only a hidden one, so that no folder of the user's is emptied."""
    if not raw:
        return ""
    name = check_relative(str(raw))[0]
    if name.startswith(TEMP_PREFIX):
        return name
    raise ArgumentError(f"{name!r} is not a folder that a client fills")


def _check_places(outputs: frozenset[str], names: Mapping[str, str], label: str) -> None:
    """Refuse outputs without a usable place: one would be retried forever, or two would write one file.

    Only outputs of the stream are checked: names of the others are unused.
    """
    placed = [
        labelled(names.get(name, default), label) for name, default in OUTPUT_NAMES.items() if name in outputs
    ]
    long = [name for name in placed if len(os.fsencode(name)) > MAX_NAME_BYTES]
    if long or len({*placed, *TAKEN_NAMES}) < len(placed) + len(TAKEN_NAMES):
        raise ArgumentError(f"no place for the outputs {placed!r:.400}")


def stream_opening(stream: Path) -> Opening | None:
    """The opening in the oldest readable segment of a stream; None without one."""
    with suppress(OSError, RlaError, LookupError):
        for number in segment_numbers(stream):
            first = segment_path(stream, number)
            found = frame_at(read_at(first, 0, OPENING_BYTES), 0) or frame_at(
                read_at(first, 0, MAX_FRAME_BYTES), 0
            )
            if isinstance(found, Frame) and found.kind == FrameKind.OPEN:
                return Opening.from_fields(unpack(found.payload))
    return None
