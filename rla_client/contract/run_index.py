"""Index of a run, the path of its item inside the task table.

It is `YYYY/MM/DD/<HH-MM-SS-ffffff>_<ip>_<info>` (formats of polixir/RLAssistant). Databases written before
its index format `v1` separate the three parts by spaces; `RunIndex.parse` reads both, `RunIndex.name`
writes the new one. No I/O, no clock.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rla_client.contract.layout import LOG_NAME_FORMAT_VERSION

# 255 bytes is the limit of ext4, xfs and APFS; the rest is room for `.json.tmp-xxxxxxxx`.
MAX_INDEX_NAME_BYTES = 230
DATE_LENGTH = len("2026/11/21/09-30-01-123456")
RECORD_DATE_FORMAT = "%Y/%m/%d/%H-%M-%S-%f"
_ENCODING = sys.getfilesystemencoding()  # all but UTF-8 has to be asked for
_TIME = r"\d{2}-\d{2}-\d{2}-\d{6}"
_INDEX = re.compile(rf"^(?P<time>{_TIME})(?P<sep>[_ ])(?P<ip>[^_ ]*)(?P=sep)(?P<info>.*)$", re.DOTALL)
_DATE_FOLDERS = re.compile(r"^\d{4}/\d{2}/\d{2}$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INFO_TRANSLATION = str.maketrans({"[": "{", "]": "}", "/": "_"})


NO_IP = "noip"  # stands where an address would: no network, or an imported run


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
