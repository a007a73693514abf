"""Findings about the agent's database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.filesystem.plain_files import sqlite_address


def check_database(around: Surroundings) -> Iterator[Finding]:
    """agent.db is whole."""
    path = around.places.database
    if path.exists() and not path.is_file():
        yield Finding("database", "fault", f"{path} is not a file", f"rm -r {path}; rla-agent restart")
    elif path.exists():
        try:
            with closing(sqlite3.connect(sqlite_address(path), uri=True, timeout=1.0)) as database:
                answer = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            answer = str(error)
        if answer != "ok":
            what = f"{path} is damaged ({answer})"
            fix = "rla-agent restart: it makes a new one; positions come from the spool"
            yield Finding("database", "fault", what, fix)
    for aside in sorted([*path.parent.glob("*.db.broken*"), *path.parent.glob("replicate/*.db.broken*")]):
        what = f"{aside} is a damaged database that was set aside; it is no longer used"
        yield Finding("database-aside", "note", what, f"check that disk; then: rm {aside}")
