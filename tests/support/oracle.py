"""What returned in a workload, and the comparison of every file with that.

A `Trainer` runs workload.py and collects what it says through the pipe. `check_folder` then reads CSV,
JSON, text and event files of the folder, each with a reader of its own, and demands of each stream:
rows 0…n-1, each once, in order and whole, with n at least what was told, and at most one more (the call
that a kill interrupted).
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import glob
import gzip
import io
import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
from pathlib import Path

import crc32c
from crash.workload import (
    DURABLE,
    LATE_EVERY,
    MAX_LATE_KEYS,
    ROW,
    SAMPLES,
    TEXT,
    TEXT_EVERY,
    TOLD,
    row_of,
    samples_of,
    text_of,
)
from crash.zygote import Forked, Zygote

from rla_client.contract.agent.places import Places
from rla_client.contract.spool.segments import segment_numbers, segment_path, stream_names
from support.waiting import TIME_FACTOR

WORKLOAD = Path(__file__).parents[1] / "crash" / "workload.py"
PIPE_BYTES = 1 << 20
ENDED_WITHIN_S = 30.0 * TIME_FACTOR
KINDS = ("csv", "json", "log", "tensorboard")


class Trainer:
    """A workload process and what it told of each stream: counts of rows, texts, chunks of samples."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: tuple[str, ...] = (),
        zygote: Zygote | None = None,
        log: Path | None = None,
    ) -> None:
        self.folder = folder
        self.rows = [0, 0]
        self.texts = [0, 0]
        self.durable = [0, 0]
        self.samples = [0, 0]
        read, write = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.process: subprocess.Popen[bytes] | Forked
        if zygote is not None:
            log = Path(os.devnull) if log is None else log
            self.process = zygote.fork("workload", str(folder), "PIPE", *arguments, log=log, pipe=write)
        else:
            self.process = subprocess.Popen(
                [*command, sys.executable, str(WORKLOAD), str(folder), str(write), *arguments],
                pass_fds=(write,),
                stdin=subprocess.DEVNULL,
            )
        os.close(write)
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    @property
    def told(self) -> int:
        """Rows of both streams that returned."""
        return sum(self.rows)

    def _read(self, pipe: int) -> None:
        rest = b""
        with open(pipe, "rb", buffering=0) as file:
            while piece := file.read(1 << 16):
                rest += piece
                whole = len(rest) - len(rest) % TOLD.size
                for stream, kind, seq in TOLD.iter_unpack(rest[:whole]):
                    if kind == ROW:
                        self.rows[stream] = seq + 1
                    elif kind == TEXT:
                        self.texts[stream] = seq + 1
                    elif kind == SAMPLES:
                        self.samples[stream] = seq + 1
                    elif kind == DURABLE:
                        self.durable[stream] = seq + 1
                rest = rest[whole:]

    def kill(self) -> None:
        """SIGKILL; a forked worker ends by itself, its parent being gone."""
        self.process.kill()
        self.ended()

    def stop(self) -> None:
        """Ask for an orderly end."""
        self.process.send_signal(signal.SIGUSR1)
        self.ended()
        assert self.process.returncode == 0

    def ended(self) -> None:
        """Wait for the end of all writers."""
        self.process.wait(ENDED_WITHIN_S)
        self._reader.join(ENDED_WITHIN_S)
        assert not self._reader.is_alive(), "a worker of the workload did not end"


def check_samples(trainer: Trainer, count: int) -> int:
    """Demand that each chunk of samples that was told is in its file, whole, once and in order.

    Args:
        trainer: that has ended, all of it taken in.
        count: rows of a chunk.

    Returns:
        Chunks in all files.

    Raises:
        AssertionError: something is lost, double, torn, or came from nowhere.
    """
    found = 0
    for stream, told in enumerate(trainer.samples):
        paths = glob.glob(
            str(trainer.folder / ("samples.jsonl.gz" if stream == 0 else "samples.p*.jsonl.gz"))
        )
        assert bool(told) <= len(paths) <= 1, f"{paths}: one file was expected"
        for path in paths:
            lines = [json.loads(line) for line in gzip.decompress(Path(path).read_bytes()).splitlines()]
            chunks, rest = divmod(len(lines), count)
            assert rest == 0, f"{path}: a chunk is torn"
            assert told <= chunks <= told + 1, f"{path}: {chunks} chunks, {told} were told"
            wanted = [row for chunk in range(chunks) for row in samples_of(stream, chunk, count)]
            shown = [
                {name: line[name] for name in ("seq", "stream", "prompt", "completion")} for line in lines
            ]
            assert shown == wanted, f"{path}: other samples than were logged"
            assert len({line["id"] for line in lines}) == len(lines)
            found += chunks
    return found


def count_rows(folder: Path, stream: int, kinds: tuple[str, ...] = KINDS) -> dict[str, int]:
    """Rows of each output of a stream: a prefix without gaps, each row whole.

    Raises:
        AssertionError: something is double, out of order, or torn.
    """
    suffix = "" if stream == 0 else ".p*"
    counts: dict[str, int] = {}
    for kind, name, reader in (
        ("csv", f"progress{suffix}.csv", csv_rows),
        ("json", f"progress{suffix}.json", json_rows),
        ("log", f"log{suffix}.txt", log_rows),
        ("tensorboard", f"tb/{'events' if stream == 0 else 'p*'}/events.*", event_rows),
    ):
        if kind in kinds:
            paths = glob.glob(str(folder / name))
            assert len(paths) <= 1, f"{paths}: one file was expected"
            counts[kind] = reader(Path(paths[0]), stream) if paths else 0
    return counts


def check_after_power_cut(trainer: Trainer) -> tuple[int, int]:
    """All durable rows are there, of the rest a prefix; returns rows found and rows told.

    Raises:
        AssertionError: something durable is missing, or a file has a gap, a double or torn row.
    """
    found = 0
    for stream in (0, 1):
        counts = count_rows(trainer.folder, stream) if trainer.folder.is_dir() else dict.fromkeys(KINDS, 0)
        told, durable = trainer.rows[stream], trainer.durable[stream]
        for kind, count in counts.items():
            assert durable <= count <= told + 1, (
                f"{kind} of stream {stream} has {count} rows; {durable} were durable, {told} told"
            )
        found += min(counts.values())
    return found, trainer.told


def check_folder(trainer: Trainer, kinds: tuple[str, ...] = KINDS) -> int:
    """Compare the files of a run with what was told; returns the rows found.

    Raises:
        AssertionError: something is missing, double, out of order, or torn.
    """
    folder = trainer.folder
    found = 0
    for stream in (0, 1):
        counts = count_rows(folder, stream, kinds)
        told = trainer.rows[stream]
        for kind, count in counts.items():
            assert told <= count <= told + 1, f"{kind} of stream {stream} has {count} rows, {told} were told"
        assert len(set(counts.values())) <= 1, f"outputs of stream {stream} differ: {counts}"
        found += max(counts.values(), default=0)
    aside = [name for name in os.listdir(folder) if ".old-" in name or ".abandoned-" in name]
    assert not aside, f"files were put aside: {aside}"
    return found


def csv_rows(path: Path, stream: int) -> int:
    """Rows of a CSV, each compared with what was logged."""
    content = path.read_text(encoding="utf-8")
    if not content:
        return 0
    assert content.endswith("\n"), f"{path} ends in the middle of a row"
    lines = list(csv.reader(io.StringIO(content, newline="")))
    header, rows = lines[0], lines[1:]
    first = sorted([*row_of(stream, 0), "time-step", "timestamp"])
    late = [f"late/{n:02d}" for n in range(1, MAX_LATE_KEYS + 1) if n * LATE_EVERY <= len(rows)]
    # the file is widened before the row that needs it: a power cut may come between
    exact = len(rows) == 0 or len(rows) % LATE_EVERY
    assert header == first + late or (not exact and header == (first + late)[:-1]), header
    for seq, line in enumerate(rows):
        assert len(line) == len(header), f"{path}: row {seq} has {len(line)} of {len(header)} cells: {line}"
        row = dict(zip(header, line, strict=True))
        assert row["seq"] == str(seq), f"{path}: row {seq} is {row['seq']}"
        assert row["time-step"] == str(seq)
        expected = row_of(stream, seq)
        for key, cell in row.items():
            if key not in {"time-step", "timestamp"}:
                assert cell == str(expected.get(key, "")), f"{path}: row {seq}, {key}: {cell!r}"
    return len(rows)


def json_rows(path: Path, stream: int) -> int:
    """Rows of a JSON-lines file, compared with what was logged."""
    content = path.read_text(encoding="utf-8")
    assert content.endswith("\n") or not content
    lines = content.splitlines()
    for seq, line in enumerate(lines):
        row = json.loads(line)
        assert row.pop("time-step") == seq, f"{path}: row {seq} is {row}"
        row.pop("timestamp")
        assert row == row_of(stream, seq)
    return len(lines)


_LOG_ROW = re.compile(r"^\| seq +\| (\d+) +\|$")
_LOG_TEXT = re.compile(r"^text (\d+) (\d+) end$")


def log_rows(path: Path, stream: int) -> int:
    """Tables and lines of text of a log.txt: each once, in order, and a text before its row."""
    rows = texts = dashes = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        dashes += line.startswith("-----")
        if (match := _LOG_ROW.match(line)) is not None:
            assert int(match[1]) == rows, f"{path}: table {rows} is {match[1]}"
            rows += 1
        elif (match := _LOG_TEXT.match(line)) is not None:
            assert line == text_of(stream, texts), f"{path}: {line!r} is out of order"
            assert texts == rows, f"{path}: {line!r} stands before row {rows}"
            texts += TEXT_EVERY
    assert dashes == 2 * rows, f"{path}: a table is torn"
    return rows


def event_rows(path: Path, stream: int) -> int:
    """Rows of an event file, each record's checksums verified."""
    from tensorboardX.proto.event_pb2 import Event

    rows = 0
    for number, record in enumerate(event_records(path)):
        event = Event.FromString(record)
        if number == 0:
            assert event.file_version == "brain.Event:2"
            continue
        values = {value.tag: value.simple_value for value in event.summary.value}
        assert event.step == rows, f"{path}: event {rows} has step {event.step}"
        assert values["perf/value"] == rows * 0.5
        assert values["stream"] == stream
        rows += 1
    return rows


def event_records(path: Path) -> list[bytes]:
    """Records of an event file.

    Raises:
        AssertionError: one is torn or damaged.
    """
    data = path.read_bytes()
    at, records = 0, []
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at : at + 8]), f"{path}: damaged length at {at}"
        end = at + 12 + length
        assert end + 4 <= len(data), f"{path}: torn at {at}"
        assert struct.unpack_from("<I", data, end)[0] == masked(data[at + 12 : end]), (
            f"{path}: damaged at {at}"
        )
        records.append(data[at + 12 : end])
        at = end + 4
    return records


def masked(data: bytes) -> int:
    """CRC-32C as event files store it."""
    crc: int = crc32c.crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def uncommitted(places: Places) -> bool:
    """Whether a stream has bytes beyond its durable position; for a moment without an agent."""
    if not places.database.exists():
        return bool(stream_names(places.spool))
    database = sqlite3.connect(places.database)
    try:
        known = {
            stream: (number, offset)
            for stream, number, offset in database.execute(
                "SELECT stream, number, offset FROM outputs WHERE name=''"
            )
        }
    except sqlite3.Error:
        known = {}
    finally:
        database.close()
    for name in stream_names(places.spool):
        folder = places.spool / name
        with contextlib.suppress(OSError, ValueError):
            number = max(segment_numbers(folder))
            if (number, segment_path(folder, number).stat().st_size) > known.get(name, (0, 0)):
                return True
    return False


def csv_seqs(path: Path) -> list[int]:
    """The sequence numbers in a CSV, where gaps are allowed; a last line without its end is left out."""
    content = path.read_text(encoding="utf-8")
    content = content[: content.rfind("\n") + 1]
    if content.count('"') % 2:
        content = content[: content.rfind('"')]
        content = content[: content.rfind("\n", 0, content.rfind('a, ""')) + 1]
    rows = list(csv.DictReader(io.StringIO(content, newline="")))
    return [int(row["seq"]) for row in rows if row["seq"]]
