"""Import of wandb's runs.

Each run is a folder, offline or online: `offline-run-<time>-<id>/run-<id>.wandb`.

That file is a log in LevelDB's framing after a header of 7 bytes: blocks of 32 KiB with records `crc32 u32
| length u16 | type u8 | data`, where the types first, middle, last make up one record. A record is a
protobuf message. This module parses the needed fields of `wandb_internal.proto`, so wandb need not be
installed. Reading stops at the first torn record. History rows become rows (the time-step is the step
metric of `define_metric`, else `_step`; `_timestamp` is the time), values of the summary that no row has
are added to the last row, config, tags, notes and the exit code are kept, and `files/` is copied to the
results. Without an exit record the state is `unknown`.

wandb writes `files/wandb-summary.json` and `files/config.yaml` beside its log. For a run with a cut log, or
without history, they give the last values, the parameters and the duration.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.imports import foreign_values, item_writer, source
from rla_client.database.imports.wandb_steps import HistoryRow, MetricRule, placed
from rla_client.database.json_files import read_json
from rla_client.database.records.record_reader import MAX_TIME
from rla_client.run.parameters.parameter_reader import parse_yaml

_HEADER = b":W&B\xe1\xbe\x00"
_BLOCK = 32 << 10
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LARGE, _SHORT = (b"{", b"["), 100  # JSON with these beginnings, or longer, is parsed within bounds
MAX_RECORD_BYTES = 64 << 20  # a row of 65,536 values has 3 MiB
_HISTORY, _SUMMARY, _CONFIG, _METRIC, _RUN, _EXIT = 2, 3, 5, 12, 17, 18  # fields of Record
_RUN_ID, _PROJECT, _RUN_CONFIG, _GROUP, _JOB, _TITLE, _NOTES, _TAGS, _HOST, _START = (
    1, 3, 4, 6, 7, 8, 9, 10, 13, 17,
)  # of RunRecord # fmt: skip
_LATEST = "latest-run"
_FOLDER = re.compile(r"run-(\d{8}_\d{6})-(.+)\Z")
_CUT = "the log of wandb is cut: last values and duration are those of wandb-summary.json"
_KEPT_ELSEWHERE = ("output.log", "config.yaml", "requirements.txt", "wandb-summary.json")
Message = Mapping[int, list[Any]]  # field number → its values: bytes or numbers


def find(folder: Path) -> Iterator[source.Look]:
    """Each run below a folder, or the run of one .wandb file."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("run-*.wandb"))
    whole = [path for path in paths if _LATEST not in path.relative_to(folder).parts]
    known = {
        path.name for path in whole
    }  # `latest-run` is a link to one of them, or its copy if links were followed
    for path in (*whole, *(path for path in paths if path.name not in known)):
        if path.is_file():
            yield os.fspath(path), partial(_look, path)


def _look(path: Path) -> source.ForeignRun:
    name, title, project, when = "", "", "", 0.0
    for record in Log(path):
        if _RUN in record:
            run = message(record[_RUN][0])
            name, title, project = (_text(run, number) for number in (_RUN_ID, _TITLE, _PROJECT))
            began = message(run[_START][0]) if _START in run else {}
            when = began.get(1, [0])[0] + began.get(2, [0])[0] / 1e9
            break
    if match := _FOLDER.search(path.parent.name):  # for a log that is cut before the run's record
        name = name or match[2]
        when = when or datetime.strptime(match[1], "%Y%m%d_%H%M%S").timestamp()  # noqa: DTZ007 - local time
    if not name:
        raise BrokenFileError(os.fspath(path), "it holds no run")
    return source.ForeignRun(source.run_name(title, name), when, partial(_read, path, when), project)


def _read(path: Path, began: float) -> source.RunContent:
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    history: list[HistoryRow] = []
    metrics: list[Message] = []
    run: Message = {}
    code: int | None = None
    ran_s = 0.0  # whole seconds
    log = Log(path)
    for record in log:
        if _RUN in record:
            run = message(record[_RUN][0])
            _update(config, run.get(_RUN_CONFIG, []))
        _update(config, record.get(_CONFIG, []))
        _update(summary, record.get(_SUMMARY, []))
        history += [_row(message(inner)) for inner in record.get(_HISTORY, [])]
        metrics += map(message, record.get(_METRIC, []))
        for inner in record.get(_EXIT, []):
            code = _signed(message(inner).get(1, [0])[0])
            ran_s = float(_signed(message(inner).get(2, [0])[0]))
    points = placed(history, _rules(metrics))
    files = path.parent / "files"
    lost = log.cut
    unfinished = log.cut or code is None or not points
    if unfinished:
        aside = _stored(files / "wandb-summary.json")
        summary |= aside
        config = _stored_config(files / "config.yaml") | config
        inner = aside.get("_wandb")
        stored_s = aside.get("_runtime") or (inner.get("runtime") if isinstance(inner, dict) else None)
        ran_s = max(ran_s, _number(stored_s))
    config.pop("_wandb", None)
    summary.pop("_wandb", None)
    logged = {"_step", "_timestamp", *(name for name, *_ in points)}
    last = max((step for _, step, _, _ in points), default=0)
    when = max((when for _, _, when, _ in points), default=began)
    if unfinished:
        own = max((row.step for row in history), default=0)
        if (newest := int(_number(summary.get("_step")))) > own and not metrics:
            last, logged = newest, {"_step", "_timestamp"}  # the summary is of a row that the log lost
            lost = lost or code is None  # the log may be cut exactly between two records
        when = max(when, began + ran_s)
    points += [
        (name, last, when, value) for name, value in foreign_values.flat(summary) if name not in logged
    ]
    state = None if code is None else "failed" if code else "finished"
    fields = {
        "opened": began,
        "closed": when if when > began or points else None,
        "exit_code": code,
        "host": _text(run, _HOST),
        "reason": "wandb's log is cut" if lost else None,
    }
    about = {"group": _text(run, _GROUP), "job_type": _text(run, _JOB), "summary": summary}
    return source.RunContent(
        *item_writer.table_of(points),
        config,
        text=files / "output.log",
        state=source.run_state("wandb", _text(run, _RUN_ID), state, **fields),
        environment={key: value for key, value in about.items() if value},
        tags=list(map(_utf8, run.get(_TAGS, []))),
        note=_text(run, _NOTES),
        files=source.files_below(files, but=_KEPT_ELSEWHERE),
        remarks=[_CUT] if lost else [],
    )


def _stored(path: Path) -> dict[str, Any]:
    """The JSON object of a file beside wandb's log; empty if it cannot be read."""
    try:
        return read_json(path) or {}
    except (BrokenFileError, OSError):
        return {}


def _stored_config(path: Path) -> dict[str, Any]:
    """The parameters of config.yaml, `name: {value: …}`; empty if it cannot be read."""
    try:
        found = parse_yaml(read_small(path).decode("utf-8", "replace"))
    except (ValueError, BrokenFileError, OSError):
        return {}
    values = found.items() if isinstance(found, dict) else ()
    return {str(name): one["value"] for name, one in values if isinstance(one, dict) and "value" in one}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < MAX_TIME else 0.0


def _rules(metrics: Sequence[Message]) -> list[MetricRule]:
    """Rules of MetricRecords, which give a step metric by its name or by the number of its record."""
    names = [(_text(one, 1) or _text(one, 2)).replace("\\.", ".") for one in metrics]
    rules = []
    for name, one in zip(names, metrics, strict=True):
        number = one.get(5, [0])[0]
        step = _text(one, 4).replace("\\.", ".")
        if not step and isinstance(number, int) and 0 < number <= len(names):
            step = names[number - 1]
        if name and step:
            rules.append(MetricRule(name, step))
    return rules


def _row(history: Message) -> HistoryRow:
    values: dict[str, Any] = {}
    for item in history.get(1, []):
        _set(values, message(item))
    step = values.pop("_step", None)
    if step is None:
        step = message(history[2][0]).get(1, [0])[0] if 2 in history else 0  # noqa: PLR2004 - HistoryStep
    when = float(values.pop("_timestamp", 0.0))
    return HistoryRow(dict(foreign_values.flat(values)), int(step), when)


def _update(target: dict[str, Any], records: Sequence[bytes]) -> None:
    """Apply the `update` and `remove` fields of ConfigRecords or SummaryRecords."""
    for change in map(message, records):
        for item in change.get(1, []):
            _set(target, message(item))
        for item in change.get(2, []):
            target.pop(_text(message(item), 1), None)


def _set(target: dict[str, Any], item: Message) -> None:
    names = list(map(_utf8, item.get(2, item.get(1, []))))
    if not names:
        return
    *above, name = names
    for part in above:
        below = target.setdefault(part, {})
        target = below if isinstance(below, dict) else target.setdefault(f"{part}.", {})
    target[name] = _item_value(item)


def _item_value(item: Message) -> object:
    """Value of an item: of its value_json, or of the typed fields: boolean, integer, number, text, json."""
    texts = item.get(16, item.get(8))
    if texts is not None:
        text = texts[0]
        return parse_json(text) if text[:1] in _LARGE or len(text) > _SHORT else json.loads(text)
    return next((read(item[number][0]) for number, read in _TYPED.items() if number in item), None)


def _text(found: Message, number: int) -> str:
    value = found.get(number, [b""])[-1]
    return _utf8(value) if isinstance(value, bytes) else ""


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_TYPED: Mapping[int, Callable[[Any], object]] = {4: bool, 5: _signed, 6: lambda number: number, 7: _utf8}


class Log:
    """The records of a .wandb file as messages, up to the first torn one.

    Iteration raises BrokenFileError if it is no such file, or if a complete record is not a message.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cut = False  # whether it ended within a record

    def __iter__(self) -> Iterator[Message]:
        with open_plain(self._path) as file:
            if (head := file.read(len(_HEADER))) != _HEADER:
                if _HEADER.startswith(head):  # after a full disk, or at the very start of a run
                    self.cut = True
                    return
                raise BrokenFileError(os.fspath(self._path), "it is not a log of wandb")
            for data in self._framed(file):
                try:
                    yield message(data)
                except (ValueError, IndexError, struct.error) as error:
                    text = "a record is not a message of wandb's"
                    raise BrokenFileError(os.fspath(self._path), text) from error

    def _framed(self, file: BinaryIO) -> Iterator[bytes]:
        whole = bytearray()
        within = False
        while True:
            left = _BLOCK - file.tell() % _BLOCK
            if left < _CHUNK.size:
                file.read(left)
            head = file.read(_CHUNK.size)
            self.cut = within or 0 < len(head) < _CHUNK.size
            if len(head) < _CHUNK.size:
                return
            check, length, kind = _CHUNK.unpack(head)
            data = file.read(length)
            self.cut = True
            if len(data) < length or not _WHOLE <= kind <= _LAST or zlib.crc32(head[6:] + data) != check:
                return
            if kind in {_WHOLE, _FIRST}:
                whole.clear()
            whole += data
            if len(whole) > MAX_RECORD_BYTES:
                return
            within = kind in {_FIRST, _MIDDLE}
            if not within:
                yield bytes(whole)


def message(data: bytes) -> Message:
    """A protobuf message by field numbers.

    Raises:
        ValueError, IndexError, struct.error: the data is no message.
    """
    found: defaultdict[int, list[Any]] = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | float | bytes
        match key & 7:
            case 0:
                value, at = _varint(data, at)
            case 1:
                value, at = struct.unpack_from("<d", data, at)[0], at + 8
            case 2:
                length, at = _varint(data, at)
                value, at = data[at : at + length], at + length
            case 5:
                value, at = struct.unpack_from("<f", data, at)[0], at + 4
            case _:
                raise ValueError
        if at > len(data):
            raise ValueError
        found[key >> 3].append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - without the top bit, the last byte
            return result, at
        shift += 7
        if shift > 63:  # noqa: PLR2004
            raise ValueError
