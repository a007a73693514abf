"""One stream and its agent's side in this process, without sockets and threads of its own.

`LoneStream` writes a spool by the real SegmentWriter. `Side` is what an agent process holds in memory;
dropping it and making another is a SIGKILL at that point.
"""

from __future__ import annotations

import contextlib
import csv
import os
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType

import pytest

import rla_agent.pipeline.batch_reader as reading_module
import rla_client.stream.segment_writer as spool_module
from rla_agent.model.stream_states import OutputState
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.pipeline.csv_widening import Widener
from rla_agent.pipeline.data_root_watch import root_is_back
from rla_agent.pipeline.group_commit import Committer
from rla_agent.pipeline.recovery import recover
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.stream.segment_writer import SegmentWriter


def read_in_pieces(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Segments and reads so small that a history of few rows has many of them."""
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", chance.choice([700, 2000, 10_000]))
    monkeypatch.setattr(reading_module, "READ_BYTES", chance.choice([300, 1500, 1 << 18]))


class LoneStream:
    """The client's side: a data root, a spool, a writer."""

    def __init__(self, folder: Path, folders: dict[str, str] | None = None) -> None:
        self.root = folder / "root"
        self.spool = folder / "spool"
        self.database = folder / "agent.db"
        self.root.mkdir()
        self.spool.mkdir()
        found = os.stat(self.root)
        self.opening = {
            "run": "r", "epoch": 1, "opened": 1.5, "root": str(self.root), "root_device": found.st_dev,
            "root_inode": found.st_ino, "folders": folders or {"log": "."}, "names": {}, "sinks": ["csv", "json", "log", "tensorboard"],  # noqa: E501
            "table": "", "index": "", "primary": True, "label": "", "pid": os.getpid(), "host": "h", "user": "u",  # noqa: E501
            "python": "p", "client": "0", "config": None, "offline": False,
        }  # fmt: skip
        self.writer = self.new_writer()
        self.rows = 0

    def new_writer(self) -> SegmentWriter:
        """Another stream, by the opening as it is now."""
        return SegmentWriter(
            self.spool,
            lambda number, rows: encode_frame(
                FrameKind.OPEN, pack({**self.opening, "segment": number, "rows": rows, "lost": 0})
            ),
        )

    def some_rows(self, chance: random.Random) -> None:
        """Append a few rows of numbers and text, some of which needs quoting."""
        for _ in range(chance.randrange(1, 12)):
            self.row({"v": chance.random(), "t": chance.choice(["plain", 'a "quoted"\ntext, too'])})

    def late_row(self) -> None:
        """Append a row with a column of its own."""
        self.row({f"late{self.rows}": self.rows})

    def table(self) -> list[dict[str, str]]:
        """The rows of its CSV.

        Raises:
            AssertionError: one is torn, or has another row's value in its late column.
        """
        with (self.root / "progress.csv").open(newline="") as file:
            rows = list(csv.DictReader(file, restval="torn", restkey="torn"))
        assert not any("torn" in row or "torn" in row.values() for row in rows)
        for row in rows:
            assert row.get(f"late{row['seq']}", row["seq"]) == row["seq"]
        return rows

    def row(self, values: dict[str, object]) -> None:
        """Append one row; its `seq` is added."""
        payload = pack([self.rows, float(self.rows), {"seq": self.rows, **values}])
        self.writer.append(encode_frame(FrameKind.ROW, payload), 1)
        self.rows += 1

    def forget_database(self) -> None:
        for ending in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.database}{ending}")


class Side:
    """The agent's side of a LoneStream."""

    def __init__(self, lone: LoneStream, *, open_files: int = 16) -> None:
        self.database = AgentDatabase(lone.database)
        self.files = OpenFiles(open_files)
        self.pool = ThreadPoolExecutor(2)
        self.committer = Committer(self.database, self.files, self.pool)
        self.widener = Widener(self.pool, self.database, lambda _: None)
        self.stream = Stream(lone.writer.name, lone.writer.folder)
        self.faults: dict[str, str] = {}
        recover(self.stream, self.database, self.files)

    def __enter__(self) -> Side:  # noqa: PYI034
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.drop()
        else:
            self._close()

    def drop(self) -> None:
        """The process is gone; what it wrote stays, and what it knew was right."""
        try:
            self.stream.validate()
        finally:
            self._close()

    def _close(self) -> None:
        self.pool.shutdown(wait=True)
        self.files.close_all()
        with contextlib.suppress(sqlite3.Error):
            self.database.close()

    def serve(self, *, hurry: bool = True) -> None:
        """Rewrites and outputs that lag."""
        for output in self.stream.outputs:
            self.widener.serve(self.stream, output, self.files, hurry=hurry)
            if hurry and (rewrite := self.widener._running.get(output)) is not None:
                wait([rewrite], 60)
                self.widener.serve(self.stream, output, self.files, hurry=hurry)
            if output.position < self.stream.position:
                self.stream.catch_up(output, self.files, time.monotonic() + 1.0)
                self.stream.touch()

    def read(self, pieces: int = 1) -> None:
        """Take in some pieces of the spool."""
        for _ in range(pieces):
            self.stream.read_more(self.files)

    def read_all(self) -> None:
        """Take in everything, in all outputs."""
        end = time.monotonic() + 60
        while not self.stream.at_end:
            self.stream.read_more(self.files)
            for output in self.stream.outputs:
                output.may_retry(float("inf"))
            self.serve()
            assert time.monotonic() < end, [
                (o.name, o.error, o.blocked, o.position) for o in self.stream.outputs
            ]

    def begin(self) -> None:
        """Files that were removed are made again, at once."""
        for output in self.stream.outputs:
            if output.may_retry(float("inf")) and output.state is OutputState.NEW:
                output.begin(self.files)

    def settle(self) -> None:
        """Take in everything and commit, as often as it takes until all of it is durable."""
        end = time.monotonic() + 60
        while not (self.stream.at_end and self.stream.all_durable == self.stream.position):
            self.stream.read_more(self.files)
            self.begin()
            self.serve()
            self.commit()
            assert time.monotonic() < end, [(o.name, o.error, o.blocked) for o in self.stream.outputs]

    def come_back(self) -> None:
        """The data root that the stream waits for is there again."""
        assert root_is_back(self.stream, self.database, self.files, self.faults), self.faults

    def commit(self) -> bool:
        """One commit."""
        return self.committer.commit_streams([self.stream], CommitChanges(), self.faults)

    def durable_sizes(self) -> dict[str, int]:
        """Committed size of each output's file."""
        return {row.path: row.size for row in self.database.outputs_of(self.stream.name).values() if row.path}
