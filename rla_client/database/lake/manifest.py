"""Manifest of the lake's parts.

The lake lies in `<data root>/.rla/lake/`, which replication, `fsck` and all readers of the tables ignore.
It can be deleted and rebuilt at any time: it is a copy of the runs' files.

    lock                                            held (flock) by the one process that builds
    manifest.json                                   names of the valid parts; all other files are garbage
    tables/<table>/<YYYY-MM-DD>-<id>/*.parquet      one part: up to `MAX_RUNS` runs of one table

A part begins with the day in its name and holds whole days, or a piece of a day with many runs. It is
never changed: when a run changes, its part is written again under another id. A manifest or part that
cannot be read is left out with a warning, and its runs are read from their files.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.safe_names import check_relative
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.catalogue import VERSION

LAKE = ".rla/lake"
TABLES = "tables"
MANIFEST = "manifest.json"
FORMAT = 2
MAX_MANIFEST_BYTES = 16 << 20  # 30,000 parts of 500 bytes
NAMES = ("runs", "params", "last", "rows", "system", "files", "samples")  # the files of a part
MAX_RUNS = 2048  # in one part


@dataclass(frozen=True, slots=True)
class LakePart:
    """A part: some runs of one table, in files of their own.

    Attributes:
        name: its folder below the lake.
        table: task table.
        first: smallest index of its runs.
        last: largest index.
        runs: number of runs.
        table_bytes: total of their `build_plan.EndedRun.table_bytes`.
        sizes: file name without ending → its bytes.
        footers: file name without ending → checksum of its footer, which Parquet itself does not protect.
        written: time of writing, Unix seconds.
    """

    name: str
    table: str
    first: str
    last: str
    runs: int
    table_bytes: int
    sizes: dict[str, int] = field(hash=False)
    footers: dict[str, int] = field(hash=False)
    written: float


def read_parts(data_root: Path) -> list[LakePart]:
    """Parts in the manifest; none without a lake, or, with a warning, if the manifest is broken."""
    try:
        with held_folder(data_root, LAKE) as folder:
            found = parse_json(read_small(folder / MANIFEST, MAX_MANIFEST_BYTES), MAX_MANIFEST_BYTES)
        return _parts(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, DatabaseError) as error:
        warn(f"the lake's manifest cannot be read ({error}); the files are read instead")
        return []


def _parts(found: Any) -> list[LakePart]:  # noqa: ANN401
    if found["format"] != FORMAT or found["catalogue"] != VERSION:
        return []  # another version: the next build replaces it
    parts = []
    for one in found["parts"]:
        part = LakePart(
            str(one["name"]),
            str(one["table"]),
            str(one["first"]),
            str(one["last"]),
            int(one["runs"]),
            int(one["table_bytes"]),
            {str(name): int(size) for name, size in one["sizes"].items()},
            {str(name): int(check) for name, check in one["footers"].items()},
            float(one["written"]),
        )
        if check_relative(part.name)[0] != TABLES or {*part.sizes} != {*NAMES} or {*part.footers} != {*NAMES}:
            raise ValueError(f"{part.name!r} is not a part")
        parts.append(part)
    return parts


def warn(message: str) -> None:
    """Warn about a fault of the lake, once per calling line; such a fault costs only time."""
    warnings.warn(f"{message}\nhint: rla lake build", stacklevel=3)
