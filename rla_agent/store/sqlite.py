"""SQLite access of the agent.

A file's version is its `user_version`: the number of applied steps of its owner's list of migrations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.plain_files import sqlite_address

BUSY_TIMEOUT_S = 60.0
MOST_BROKEN = 5  # damaged databases that are kept: a disk that keeps damaging them must not be filled
BESIDE_TIMEOUT_S = 2.0  # for readers
WAL_PAGES = 1000  # SQLite's own checkpoint size; the WAL is written that far once
Store = TypeVar("Store")
Step: TypeAlias = "str | Callable[[sqlite3.Connection], None]"  # statements, or what executes them


class NewerFormatError(RlaError):
    """A later release made or upgraded the file; nothing was written to it."""


class EarlierFormatError(RlaError):
    """An agent of an earlier release has the file open, perhaps; it was left as it is."""


def _check_version(db: sqlite3.Connection, path: Path, ours: int) -> int:
    """The version of a file; a NewerFormatError where it is later than `ours`."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > ours:
        raise NewerFormatError(
            f"{path} is of version {found}, and this release knows versions up to {ours}: "
            "upgrade rla-agent (pip install -U rla-agent), then start it again; nothing was changed"
        )
    return int(found)


def connect(path: Path, steps: Sequence[Step], wait_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """A connection in autocommit mode to a file that `migrate` may then bring to the version of `steps`.

    Raises:
        NewerFormatError: a later release has it; nothing is written to it.
        sqlite3.Error: it cannot be opened or is not a database.
    """
    return _checked(sqlite3.connect(path, timeout=wait_s, isolation_level=None), path, steps)


def connect_readonly(path: Path, steps: Sequence[Step]) -> sqlite3.Connection:
    """A read-only connection, for readers beside the file's owner.

    Raises:
        NewerFormatError: a later release has it.
        sqlite3.Error: it cannot be opened or is not a database.
    """
    db = sqlite3.connect(sqlite_address(path), uri=True, timeout=BESIDE_TIMEOUT_S)
    return _checked(db, path, steps)


def _checked(db: sqlite3.Connection, path: Path, steps: Sequence[Step]) -> sqlite3.Connection:
    try:
        _check_version(db, path, len(steps))
    except BaseException:
        db.close()
        raise
    return db


def migrate(db: sqlite3.Connection, path: Path, steps: Sequence[Step], *, may: bool = True) -> None:
    """Bring a file to the version `len(steps)`, by those steps that it lacks, all or none.

    Args:
        db: open.
        path: of the file, for messages.
        steps: of its owner.
        may: False where somebody else may have it open, who knows only the version that it has.

    Raises:
        NewerFormatError: it is later than that.
        EarlierFormatError: it is earlier, and may not be changed.
        sqlite3.Error: it is unchanged.
    """
    found = _check_version(db, path, len(steps))
    if found == len(steps):
        return
    if not may:
        raise EarlierFormatError(
            f"{path} is of an earlier release, whose agent may serve it: rla-agent restart"
        )
    with transaction(db):
        for step in steps[_check_version(db, path, len(steps)) :]:  # asked again: nobody else changes it now
            if callable(step):
                step(db)
                continue
            for statement in step.split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(steps)}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Atomic transaction, for a connection in autocommit mode (`isolation_level=None`).

    Raises:
        sqlite3.Error: nothing was stored.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # after some errors SQLite has rolled back itself
            db.execute("ROLLBACK")
        raise


def grow_wal(db: sqlite3.Connection) -> None:
    """Write the WAL out to its full length once, so that a full disk cannot stop commits.

    It stays so long until the last connection to the file closes.

    Raises:
        sqlite3.Error: there is no room for it now.
    """
    page = b"\0" * 3500
    with transaction(db):
        db.execute("CREATE TABLE IF NOT EXISTS filler(page BLOB)")
        db.executemany("INSERT INTO filler VALUES(?)", ((page,) for _ in range(WAL_PAGES + 24)))
        db.execute("DELETE FROM filler")


def database_files(path: Path) -> tuple[Path, ...]:
    """A database and SQLite's files beside it while it is open."""
    return path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def open_or_replace(path: Path, opened: Callable[[Path], Store]) -> tuple[Store, str]:
    """Open a store; a damaged database file is put aside and a new one begun.

    Args:
        path: the database file.
        opened: opens a store on it, creating its tables.

    Returns:
        The store, and where the broken file went, empty if it was sound.

    Raises:
        sqlite3.OperationalError: it cannot be opened or written now.
    """
    if not path.exists():
        _remove_beside(path)  # a WAL would be replayed into the new file
        return opened(path), ""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as probe:
            (found,) = probe.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)  # noqa: TRY301 - one way to put it aside
        return opened(path), ""
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        aside = broken_name(path)
        path.replace(aside)
        _remove_beside(path)
        return opened(path), str(aside)


def broken_name(path: Path) -> Path:
    """Name for a damaged database: the first free one, or the last of MOST_BROKEN when all are taken."""
    endings = ["", *(f"-{number}" for number in range(2, MOST_BROKEN + 1))]
    paths = [path.with_name(f"{path.name}.broken{ending}") for ending in endings]
    return next((free for free in paths if not free.exists()), paths[-1])


def _remove_beside(path: Path) -> None:
    for beside in database_files(path)[1:]:
        beside.unlink(missing_ok=True)
