"""Committed sizes of the agent's append-only outputs."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from rla_agent.replicate.file_state import Owned
from rla_client.contract.filesystem.plain_files import sqlite_address

MAX_REMEMBERED: Final = 50_000  # outputs in memory; agent.db has the rest
_OUTPUT: Final = "SELECT generation, size, final FROM outputs WHERE path = ? ORDER BY generation DESC LIMIT 1"


class Committed:
    """The agent's append-only outputs: `outputs` in agent.db (read-only).

    The agent commits there before it hints, so a hint counts only while agent.db cannot be read. An output
    whose stream has ended is in neither: then the file itself is authoritative.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "agent.db"
        self._db: sqlite3.Connection | None = None
        self._hinted: dict[bytes, Owned] = {}

    def hint(self, path: bytes, owned: Owned) -> None:
        """Store a hint; they arrive in the order of sending."""
        if len(self._hinted) >= MAX_REMEMBERED:
            self._hinted.clear()
        self._hinted[path] = owned

    def lookup(self, path: bytes) -> Owned | None:
        """The agent's state of an absolute path; None when it has none."""
        try:
            if self._db is None:
                if not self._path.exists():
                    return self._hinted.get(path)
                self._db = sqlite3.connect(sqlite_address(self._path), uri=True, timeout=0.2)
            row = self._db.execute(_OUTPUT, (os.fsdecode(path),)).fetchone()
        except UnicodeEncodeError:
            return self._hinted.get(path)
        except sqlite3.Error:
            self.close()
            return self._hinted.get(path)
        if row is None:
            self._hinted.pop(path, None)
            return None
        return Owned(int(row[0]), int(row[1]), bool(row[2]))

    def time_steps(self) -> dict[str, float | None]:
        """Item → time-step of live runs, newer than in run.json, which is a minute behind."""
        try:
            with closing(sqlite3.connect(sqlite_address(self._path), uri=True, timeout=0.2)) as db:
                runs = [json.loads(data) for (data,) in db.execute("SELECT data FROM runs WHERE live = 1")]
            return {f"{run['table']}/{run['index']}": run["time_step"] for run in runs}
        except (sqlite3.Error, ValueError, KeyError, TypeError):
            return {}

    def close(self) -> None:
        """Close agent.db; the next lookup opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None
