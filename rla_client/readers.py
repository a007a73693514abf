"""Readers of a run's output files as pandas DataFrames.

The files may be growing, may have been cut anywhere by a kill, or may come from the original RLA (unquoted
text, rows of nothing but commas, rows longer than the header). A record that is not whole yet, the last one,
is left out; whole ones are never dropped in silence. pandas and the TensorBoard protos are imported at the
first call; tensorflow is not needed. An event file is a sequence of records, numbers little endian,
checksums CRC-32C masked as `rotate right 15 and add 0xa282ead8`::

    8  length n   4  masked checksum of the length   n  serialised Event   4  masked checksum of the Event
"""

from __future__ import annotations

import io
import os
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.csv_frame import frame_arguments
from rla_client.contract.text.csv_lines import rows_text, split_rows
from rla_client.stream.summary_scalars import summary_scalars

if TYPE_CHECKING:
    import pandas as pd


EVENT_FILE_MARK = "tfevents"  # TensorBoard itself knows event files by this part of their name
MAIN_EVENTS_FOLDER = "events"  # tags of other folders below `tb` get the folder's name as prefix
RECORD_HEAD = struct.Struct("<QI")
RECORD_TAIL = struct.Struct("<I")
MAX_RECORD_BYTES = 256 << 20  # protobuf itself takes 2 GiB; a picture has some MB
CRC_MASK_DELTA = 0xA282EAD8


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a `progress.csv`, or the one in the folder `path`; one row per dump, in order.

    Empty cells and `nan` are NaN; other text stays as it is. A last line without its end, rows of
    commas alone and `#` lines before the header are left out; cells beyond the header's too.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with extra("read", "read_csv"):
        import pandas as pd

    data = _whole_records(_content(_file(path, "progress.csv")))
    while data.startswith(b"#"):  # stable-baselines' monitor files
        data = data.partition(b"\n")[2]
    if not data.strip():
        empty: pd.DataFrame = pd.DataFrame()
        return empty
    try:
        frame = _parse_csv(data)
    except pd.errors.ParserError:  # the original's text with commas in it
        frame = _parse_csv(_cut_to_header(data))
    filled: pd.DataFrame = frame.dropna(how="all").reset_index(drop=True)
    return filled


def _parse_csv(data: bytes) -> pd.DataFrame:
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.ParserWarning)  # cells beyond the header
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(data),
            na_values=["", "nan"],
            low_memory=False,
            **frame_arguments(),
        )
    return frame


def _file(path: str | os.PathLike[str], name: str) -> Path:
    """The path itself, or where it is a folder, the file of this name in it."""
    return Path(path, name) if os.path.isdir(path) else Path(path)


def _content(path: Path) -> bytes:
    with open_plain(path, links=True) as file:
        return file.read(written_bytes(file))


def _whole_records(data: bytes) -> bytes:
    """Cut to the last line end that is not inside quotes; NULs begin what a power cut left."""
    data = data.partition(b"\0")[0]
    end = data.rfind(b"\n") + 1
    quotes = data.count(b'"', 0, end)
    while end and quotes % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return data[:end]


def _cut_to_header(data: bytes) -> bytes:
    """Rewrite with each row cut to the header's number of cells."""
    header, *rows = split_rows(data.decode(errors="replace"))
    return rows_text([header, *(row[: len(header)] for row in rows)]).encode()


def read_json(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a `progress.json` (one object a line), or the one in the folder `path`.

    Raises:
        FileNotFoundError: there is no such file.
        ArgumentError: a whole line is not a JSON object.
    """
    with extra("read", "read_json"):
        import pandas as pd

    file = _file(path, "progress.json")
    data = _content(file)
    rows = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ArgumentError(f"{file}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ArgumentError(f"{file}, line {number}: not an object")
        rows.append(row)
    frame: pd.DataFrame = pd.DataFrame(rows)
    return frame


def read_tb(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read all scalars of an event file, or of the event files in a folder.

    Args:
        path: an event file; or a folder with some, else all below it: then tags from folders
            other than `events` carry the folder's name in front (`eval/return` of `tb/eval`).

    Returns:
        Index `step`, sorted; columns the tags, sorted; NaN where a tag has no value at a step.
        Of several values of one tag at one step the last one written counts.

    Raises:
        FileNotFoundError: no such file, or no event file below the folder.
    """
    with extra("read", "read_tb"):
        import pandas as pd

    columns: dict[str, dict[int, float]] = {}
    for prefix, file in _event_files(Path(path)):
        for step, tag, value in _scalars(file):
            columns.setdefault(prefix + tag, {})[step] = value
    ordered = {tag: pd.Series(columns[tag], dtype="float64") for tag in sorted(columns)}
    frame: pd.DataFrame = pd.DataFrame(ordered).sort_index()
    frame.index = frame.index.astype("int64")
    frame.index.name = "step"
    return frame


def read_events(file: str | os.PathLike[str], *, check: bool = True) -> Iterator[bytes]:
    """Yield the serialised Events of one file, up to the first record that is not whole.

    With `check=False` a record counts as whole whatever its checksums say, as some writers write none.
    """
    from crc32c import crc32c

    def masked(data: bytes) -> int:
        crc: int = crc32c(data)
        return ((crc >> 15 | crc << 17) + CRC_MASK_DELTA) & 0xFFFFFFFF

    with open_plain(file, links=True) as source:
        size = min(written_bytes(source), MAX_RECORD_BYTES)
        while len(head := source.read(RECORD_HEAD.size)) == RECORD_HEAD.size:
            length, crc = RECORD_HEAD.unpack(head)
            if length > size or (check and masked(head[:8]) != crc):
                return
            data = source.read(length)
            tail = source.read(RECORD_TAIL.size)
            if len(tail) < RECORD_TAIL.size or (check and RECORD_TAIL.unpack(tail)[0] != masked(data)):
                return
            yield data


def _event_files(path: Path) -> list[tuple[str, Path]]:
    """Prefix for the tags, and event file; in the order in which TensorBoard reads them."""
    if path.is_file():
        return [("", path)]
    found = sorted(path.glob(f"*{EVENT_FILE_MARK}*"))
    if found:
        return [("", file) for file in found]
    found = sorted(path.rglob(f"*{EVENT_FILE_MARK}*"))
    if not found:
        raise FileNotFoundError(f"no TensorBoard event file in {path}")
    if len({file.parent for file in found}) == 1:
        return [("", file) for file in found]
    return [(_prefix(file.parent.relative_to(path)), file) for file in found]


def _prefix(folder: Path) -> str:
    parts = folder.parts[1:] if folder.parts[:1] == ("tb",) else folder.parts
    return "" if parts in {(), (MAIN_EVENTS_FOLDER,)} else "/".join(parts) + "/"


def _scalars(file: Path) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of each scalar of one file, up to what is not an Event."""
    with extra("read", "read_tb"):
        from google.protobuf.message import DecodeError
        from tensorboardX.proto.event_pb2 import Event

    plugins: dict[str, str] = {}
    for data in read_events(file):
        try:
            event = Event.FromString(data)
        except DecodeError:
            return
        for tag, number in summary_scalars(event.summary, plugins):
            yield event.step, tag, number
