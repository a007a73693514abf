"""Where things lie in a database: kinds, index names, item folders, and which names are safe.

No I/O, no clock. A database is `<data_root>/<kind>/<task_table_name>/<index>`, and an
index is `YYYY/MM/DD/<HH-MM-SS-ffffff>_<ip>_<info>` (formats of polixir/RLAssistant). Databases
written before its index format `v1` separate the three parts by spaces; `RunIndex.parse` reads
both, `RunIndex.name` writes the new one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rla_client.contract.errors import ArgumentError, UnsafeNameError

LOG = "log"
CODE = "code"
CHECKPOINT = "checkpoint"
ARCHIVE_TESTER = "archive_tester"
HYPARAMETER = "hyperparameter"
OTHER_RESULTS = "results"
TMP_DATA = "tmp_data"
DEFAULT_LOG_TYPES = (LOG, CODE, CHECKPOINT, ARCHIVE_TESTER, HYPARAMETER, OTHER_RESULTS, TMP_DATA)
FOLDER_KINDS = tuple(kind for kind in DEFAULT_LOG_TYPES if kind != ARCHIVE_TESTER)
ARCHIVED_TABLE = "arc"
HYPARAM_FILE_NAME = "parameter"
LOG_NAME_FORMAT_VERSION = "v1"

# 255 bytes is the limit of ext4, xfs and APFS; the rest is room for `.json.tmp-xxxxxxxx`.
MAX_INDEX_NAME_BYTES = 230
MAX_COMPONENT_BYTES = 255
OUTPUT_NAMES = {
    "csv": "progress.csv",
    "json": "progress.json",
    "log": "log.txt",
    "warn": "warn.txt",
    "backup": "backup.txt",
    "console": "console.txt",
}
SINKS = ("stdout", "log", "csv", "json", "tensorboard")  # what LOG_USED may name
ALWAYS_OUTPUTS = ("warn", "backup")  # that every stream has, asked for or not
CONSOLE = "console"  # the output of a stream that has no other: what a run prints
TAKEN_NAMES = ("tb", "run.json", "system.csv")  # of a log folder, by what is not an output of a chosen name
TIME_STEP = "time-step"  # columns of each row that say when, not what
TIMESTAMP = "timestamp"
RESUME_FOLDER = ".resume"  # in the checkpoint item: what exact resume needs beside the `.pt`
MAX_STATE_BYTES = 4 << 20  # of a resume state; what is larger lies beside it
DATE_LENGTH = len("2026/11/21/09-30-01-123456")
RECORD_DATE_FORMAT = "%Y/%m/%d/%H-%M-%S-%f"

_ENCODING = sys.getfilesystemencoding()  # all but UTF-8 has to be asked for
FILE_NAMES = f"this Python writes file names as {_ENCODING}"

_TIME = r"\d{2}-\d{2}-\d{2}-\d{6}"
_INDEX = re.compile(rf"^(?P<time>{_TIME})(?P<sep>[_ ])(?P<ip>[^_ ]*)(?P=sep)(?P<info>.*)$", re.DOTALL)
_DATE_FOLDERS = re.compile(r"^\d{4}/\d{2}/\d{2}$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INFO_TRANSLATION = str.maketrans({"[": "{", "]": "}", "/": "_"})


@dataclass(frozen=True, slots=True)
class RunIndex:
    """The name of one run inside its table.

    Attributes:
        day: `YYYY/MM/DD`, local time.
        time: `HH-MM-SS-ffffff`, local time.
        ip: address of the interface towards the default route, `noip` without one.
        info: `&key=value&…` of the tracked hyper-parameters, a bare `&` without any.
        separator: `_`, or a space in old databases.
    """

    day: str
    time: str
    ip: str
    info: str
    separator: str = "_"

    @property
    def name(self) -> str:
        """Last path component, `<time>_<ip>_<info>`."""
        return self.separator.join((self.time, self.ip, self.info))

    @property
    def version(self) -> str | None:
        """Version of the spelling, None for that with spaces."""
        return None if self.separator == " " else LOG_NAME_FORMAT_VERSION

    @property
    def path(self) -> str:
        """Path below the table, `YYYY/MM/DD/<name>`."""
        return f"{self.day}/{self.name}"

    @property
    def record_date(self) -> str:
        """`YYYY/MM/DD/HH-MM-SS-ffffff`, the date by which the loader finds a run."""
        return f"{self.day}/{self.time}"

    @property
    def opened(self) -> datetime:
        """Start of the run, naive local time."""
        return datetime.strptime(self.record_date, RECORD_DATE_FORMAT)  # noqa: DTZ007

    @classmethod
    def make(cls, opened: datetime, ip: str, info: str) -> RunIndex:
        """Name a run; an info that makes the name too long is shortened with a hash."""
        day = opened.strftime("%Y/%m/%d")
        time = opened.strftime("%H-%M-%S-%f")
        room = MAX_INDEX_NAME_BYTES - len(f"{time}_{ip}_".encode())
        return cls(day, time, ip, shorten_info(info, room))

    @classmethod
    def parse(cls, path: str) -> RunIndex | None:
        """Read `YYYY/MM/DD/<name>` in either spelling; None when it is not an index."""
        day, _, name = path.rpartition("/")
        match = _INDEX.match(name)
        if match is None or not _DATE_FOLDERS.match(day):
            return None
        return cls(day, match["time"], match["ip"], match["info"], match["sep"])


def make_info(tracked: Iterable[tuple[str, object]]) -> str:
    """Join tracked hyper-parameters to the info part: `&key=value&key=value`.

    Order is kept and repeats stay, as in RLA; `[ ]` become `{ }` and `/` becomes `_`.
    Control characters, which RLA let through, become `_`, so that a name is one line. What this Python
    cannot write in a file name (the locale C with PYTHONUTF8=0) becomes an escape.
    """
    parts = (f"{key}={value!s}" for key, value in tracked)
    info = "&" + "&".join(parts)
    info = info.translate(_INFO_TRANSLATION)
    return _CONTROL.sub("_", info).encode(_ENCODING, "backslashreplace").decode(_ENCODING)


def shorten_info(info: str, room_bytes: int) -> str:
    """Cut `info` to `room_bytes` of UTF-8; what was cut is stood for by a hash of the whole."""
    raw = info.encode()
    if len(raw) <= room_bytes:
        return info
    import hashlib  # noqa: PLC0415 - not at import of the package

    tail = "~" + hashlib.sha256(raw).hexdigest()[:12]
    return raw[: room_bytes - len(tail)].decode("utf-8", "ignore") + tail


def check_table_name(name: object) -> str:
    """Return a task table name that may become folders (`a` or `a/b`).

    Raises:
        ArgumentError: it is not text.
        UnsafeNameError: it is empty, absolute, leaves the database, or holds control characters.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"task_table_name must be text, got {type(name).__name__}")
    check_relative(name, what="task_table_name")
    return name


def check_relative(path: str, *, what: str = "name") -> tuple[str, ...]:
    """Split a relative path into components that are each safe below some folder.

    Raises:
        UnsafeNameError: a component is empty, `.`, `..`, too long, or not storable as UTF-8;
            or the path is absolute or holds control characters.
    """
    parts = tuple(path.split("/"))
    for part in parts:
        problem = component_problem(part)
        if problem:
            raise UnsafeNameError(f"{what} {path!r} cannot be used: {problem}")
    return parts


def component_problem(part: str) -> str | None:
    """Say why `part` cannot be one path component, or None when it can."""
    if part == "":
        return "it is empty, absolute, or has two slashes in a row"
    if part in {".", ".."}:
        return f"{part!r} would leave its folder"
    if "/" in part or _CONTROL.search(part):
        return "it holds a slash or a control character"
    try:
        raw = part.encode()
        part.encode(_ENCODING)
    except UnicodeEncodeError as error:
        utf8 = error.encoding == "utf-8"
        return "it is not valid Unicode text" if utf8 else f"{FILE_NAMES}; start it with PYTHONUTF8=1"
    return f"it is longer than {MAX_COMPONENT_BYTES} bytes" if len(raw) > MAX_COMPONENT_BYTES else None


def item_path(kind: str, table: str, index: str) -> str:
    """Path of one item below the data root; for archive_tester without its file ending."""
    return f"{kind}/{table}/{index}"


def arrays_name(stem: str, order: int) -> str:
    """Name in `.resume` of the arrays of the save `order`; `stem`: of the checkpoint's name."""
    return f"{stem}.{order}.arrays"
