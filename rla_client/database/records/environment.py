"""Environment of a run at its start (`environment.json`).

The client writes the file (`rla_client/code/environment.py`); imports write one with the other tool's
data. A few of its values are fields of a run (`TOLD_HERE`) for filters, tables and `rla show`. They are
cut out of the file without parsing its long list of packages and its diff, which matters for ten thousand
runs. `compared` gives the values that `rla diff` compares: all except those that identify the process.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.records.told_fields import ENVIRONMENT_FILE, names_from

TOLD_HERE = names_from(ENVIRONMENT_FILE)
MAX_TOLD_BYTES = 256 << 10  # the diff, which may be longer, is written last
_LONG_LINE = 4096  # a longer line is a diff, never one of TOLD_HERE
_INDENTED = re.compile(rb'\{\n( +)"')
_OF_THE_PROCESS = ("format_version", "command", "code_backup", "summary")
_VARIABLES_OF_THE_PROCESS = ("RLA_", "SLURM_")  # identities of jobs, which always differ


def told_of(environment: Mapping[str, Any]) -> dict[str, str]:
    """The values of TOLD_HERE in an environment.json."""
    git = environment.get("git")
    known = {**environment, **(git if isinstance(git, Mapping) else {})}
    return {name: value for name in TOLD_HERE if isinstance(value := known.get(name), str) and value}


def read_told(path: str | os.PathLike[str]) -> dict[str, str]:
    """`told_of` of a file's first `MAX_TOLD_BYTES`; empty if it is missing or broken."""
    with suppress(DatabaseError, OSError, ValueError):
        with open_plain(path) as file:
            data = file.read(MAX_TOLD_BYTES + 1)
        indented = _INDENTED.match(data)
        if indented is not None:
            if len(data) > _LONG_LINE:
                data = b"\n".join(line for line in data.split(b"\n") if len(line) < _LONG_LINE)
            return told_of(_cut_out(data, indented[1]))
        found = parse_json(data) if len(data) <= MAX_TOLD_BYTES else None
        return told_of(found) if isinstance(found, dict) else {}
    return {}


def _cut_out(data: bytes, indent: bytes) -> dict[str, Any]:
    """The values that `told_of` needs, cut out of JSON with one value per line."""
    found: dict[str, Any] = dict(_lines(data, indent, 0, len(data)))
    begin = data.find(b'\n%b"git": {\n' % indent)
    if begin >= 0:
        end = data.find(b"\n%b}" % indent, begin)
        found["git"] = dict(_lines(data, indent * 2, begin, len(data) if end < 0 else end + 1))
    return found


def _lines(data: bytes, indent: bytes, begin: int, end: int) -> Iterator[tuple[str, object]]:
    for name in TOLD_HERE:
        key = b'\n%b"%b": ' % (indent, name.encode())
        at = data.find(key, begin, end)
        line_end = data.find(b"\n", at + len(key), end)
        if at >= 0 and line_end >= 0:
            with suppress(ValueError):
                yield name, parse_json(data[at + len(key) : line_end].rstrip(b","))


def compared(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Values to compare, with dotted names; the uncommitted diff as its length and digest."""
    found: dict[str, Any] = {}
    for name, value in environment.items():
        if name not in _OF_THE_PROCESS:
            _flatten(name, value, found)
    return found


def _flatten(name: str, value: object, found: dict[str, Any]) -> None:
    if name.startswith(tuple(f"environment.{begin}" for begin in _VARIABLES_OF_THE_PROCESS)):
        return
    if name == "git.diff" and isinstance(value, Mapping):
        text = str(value.get("text") or "")
        if text:
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
            found["git.uncommitted"] = f"{text.count(chr(10))} lines, sha256 {digest}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, found)
    elif value is not None:
        found[name] = value
