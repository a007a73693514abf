from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.written_runs import write_run

from rla_client.contract.errors import DatabaseError, LiveRunError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.journal import write_entry
from rla_client.database.changes.trash import (
    TRASH_DAYS,
    empty_trash,
    move_to_trash,
    restore_trash,
    trash_entries,
)
from rla_client.database.tree.items import run_items

KINDS = 7


def tree(root: Path) -> dict[str, bytes]:
    """Every visible file of a database with its content."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".rla"]
        for name in names:
            path = Path(folder, name)
            found[os.path.relpath(path, root)] = path.read_bytes()
    return found


def test_the_trash_gives_back_what_it_got(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    before = tree(root)
    with changing(root, 1000.0):
        name = move_to_trash(root, run_items(root, "task", index), 1000.0)
    assert tree(root) == {}
    (entry,) = trash_entries(root)
    assert (entry.name, entry.created, len(entry.moves)) == (name, 1000.0, KINDS)
    assert entry.bytes > 0
    with changing(root, 1001.0):
        assert restore_trash(root, name) == KINDS
    assert tree(root) == before
    assert trash_entries(root) == []


def test_restoring_never_overwrites(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    with changing(root, 1000.0):
        name = move_to_trash(root, run_items(root, "task", index), 1000.0)
    make_run()
    with changing(root, 1001.0), pytest.raises(DatabaseError, match="taken"):
        restore_trash(root, name)
    with changing(root, 1001.0), pytest.raises(DatabaseError, match="no entry"):
        restore_trash(root, "../x")


def test_what_cannot_go_back_any_more_stays_in_the_trash(root: Path, make_run: Callable[..., str]) -> None:
    """A restore was killed at its first rename, and a run wrote at the old place before the next command."""
    index = make_run()
    before = tree(root)
    with changing(root, 1000.0):
        name = move_to_trash(root, run_items(root, "task", index), 1000.0)
    folder = root / ".rla" / "trash" / name
    entry = json.loads((folder / "entry.json").read_text())
    back = [(new, old) for old, new in entry["moves"]]
    write_entry(root, f".rla/trash/{name}", 1000.0, "restoring", back)
    taken = root / "log" / "task" / index
    taken.mkdir(parents=True)
    (taken / "late.txt").write_text("late")
    with changing(root, 1001.0):
        pass
    (left,) = trash_entries(root)
    assert (left.name, [old for old, _ in left.moves]) == (name, [f"log/task/{index}"])
    assert tree(root) == {
        **{path: data for path, data in before.items() if not path.startswith("log/")},
        f"log/task/{index}/late.txt": b"late",
    }
    taken.rename(root / "away")
    with changing(root, 1002.0):
        restore_trash(root, name)
    assert {path: data for path, data in tree(root).items() if not path.startswith("away")} == before
    assert trash_entries(root) == []


def test_the_trash_is_emptied_after_its_days(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    with changing(root, 1000.0):
        move_to_trash(root, run_items(root, "task", index), 1000.0)
    with changing(root, 1000.0 + TRASH_DAYS * 86400 - 1):
        assert len(trash_entries(root)) == 1
    with changing(root, 1000.0 + TRASH_DAYS * 86400):
        assert trash_entries(root) == []
        assert empty_trash(root, 0.0) == 0


@pytest.mark.slow
def test_only_a_command_that_changes_something_empties_the_trash(
    root: Path, make_run: Callable[..., str]
) -> None:
    indices = [make_run(number=number) for number in range(3)]
    now = time.time()
    with changing(root, now):
        move_to_trash(root, run_items(root, "task", indices[0]), now - TRASH_DAYS * 86400 - 5)
        kept = move_to_trash(root, run_items(root, "task", indices[1]), now - TRASH_DAYS * 86400 + 600)
    for words in (("ls",), ("show", "@last"), ("du",), ("trash", "list"), ("fsck",)):
        rla(root, *words).communicate(timeout=60)
    assert len(trash_entries(root)) == 2, "who only looks deletes nothing"
    rla(root, "tag", indices[2], "good").communicate(timeout=60)
    assert [entry.name for entry in trash_entries(root)] == [kept]


def test_a_live_run_is_refused(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run(state="running")
    with changing(root, time.time()), pytest.raises(LiveRunError, match="09-30-00"):
        move_to_trash(root, run_items(root, "task", index), time.time())
    assert len(run_items(root, "task", index)) == KINDS


def rla(root: Path, *words: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "rla_client.cli.app",
        words[0],
        "--data-root",
        str(root),
        *words[1:],
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )


COMMANDS = ("rm", "archive", "migrate", "import", "restore")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_some_renames_nothing_is_half(tmp_path: Path, command: str) -> None:
    kill_at_renames(tmp_path, command, (2, 8, 15))


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_every_rename_nothing_is_half(tmp_path: Path, command: str) -> None:
    kill_at_renames(tmp_path, command, range(1, 40))


FOREIGN_FILES = ["hyperparameter", "log", "log"]  # kinds of the files that one imported run has


def write_foreign(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "progress.csv").write_text("step,loss\n1,0.5\n2,0.25\n")


def kill_at_renames(tmp_path: Path, command: str, calls: Iterable[int]) -> None:
    """SIGKILL at the k-th rename, then the next command: each item whole, in one place."""
    if not any(os.access(Path(folder, "strace"), os.X_OK) for folder in os.environ["PATH"].split(":")):
        pytest.skip("strace is not installed")
    foreign = tmp_path / "foreign"
    write_foreign(foreign)
    choice = ["-t", "task", "-y"]
    words = {
        "rm": ["rm", *choice],
        "archive": ["archive", *choice],
        "migrate": ["migrate", "other", *choice],
        "import": ["import", "csv", str(foreign), "-t", "new"],
    }
    for call in calls:
        root = tmp_path / f"db {call}"
        root.mkdir()
        indices = [write_run(root, number=number) for number in range(2)]
        before = tree(root)
        if command == "restore":
            with changing(root, time.time()):
                items = [item for index in indices for item in run_items(root, "task", index)]
                words["restore"] = ["trash", "restore", move_to_trash(root, items, time.time())]
        line = [sys.executable, "-m", "rla_client.cli.app", *words[command], "-d", str(root)]
        inject = f"inject=rename,renameat,renameat2:signal=KILL:when={call}"
        subprocess.run(
            ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject, *line], capture_output=True, check=False
        )
        with changing(root, time.time()):
            pass
        after = tree(root)
        assert not [
            name
            for name in os.listdir(root / ".rla")
            if name == "copies" and os.listdir(root / ".rla" / name)
        ]
        if command in {"rm", "restore"}:
            assert after in ({}, before)
            assert bool(trash_entries(root)) == (after == {})
            continue
        assert {name: after[name] for name in before} == before
        if command == "import":
            added = sorted(name.split("/", 1)[0] for name in after.keys() - before.keys())
            assert added in ([], FOREIGN_FILES, sorted([*FOREIGN_FILES, *FOREIGN_FILES])), (call, added)
            rla(root, *words["import"]).communicate(timeout=60)
            added = sorted(name.split("/", 1)[0] for name in tree(root).keys() - before.keys())
            assert added == sorted([*FOREIGN_FILES, *FOREIGN_FILES])  # the second try makes what is missing
            continue
        prefix = "arc/{kind}/task/" if command == "archive" else "{kind}/other/"
        for index in indices:
            copies = [name for name in after if index in name and name not in before]
            originals = [name for name in before if index in name]
            assert len(copies) in {0, len(originals)}, (call, copies)
            for name in originals:
                kind, rest = name.split("/task/")
                copy = prefix.format(kind=kind) + rest
                assert copy not in after or after[copy] == before[name]


@pytest.mark.slow
def test_two_commands_at_once_both_finish(root: Path, make_run: Callable[..., str]) -> None:
    for number in range(6):
        make_run(number=number)
    running = [
        rla(root, "archive", "-t", "task", "-y"),
        rla(root, "migrate", "other", "-t", "task", "-y"),
        rla(root, "archive", "-t", "task", "-y"),
    ]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    files = tree(root)
    assert len([name for name in files if name.startswith("arc/")]) == len(
        [name for name in files if "/other/" in name]
    )
    assert len(files) % 3 == 0


def test_two_removals_at_once_take_each_run_once(root: Path, make_run: Callable[..., str]) -> None:
    for number in range(4):
        make_run(number=number)
    running = [rla(root, "rm", "-t", "task", "-y") for _ in range(3)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors
    assert tree(root) == {}
    entries = trash_entries(root)
    assert sum(entry.bytes > 0 for entry in entries) == 1
    with changing(root, time.time()):
        for entry in entries:
            restore_trash(root, entry.name)
    assert len([item for item in tree(root) if item.endswith("run.json")]) == 4


@pytest.mark.slow
def test_a_run_that_is_being_written_is_listed_and_not_touched(
    root: Path, make_run: Callable[..., str]
) -> None:
    index = make_run(state="running", rows=1)
    path = root / "log" / "task" / index / "progress.csv"
    stop = threading.Event()

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for step in itertools.count(1):
                for part in (b"0.5,%d" % step, b",1.0\n"):  # a reader meets torn rows
                    file.write(part)
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = []
        for _ in range(4):
            out, errors = rla(root, "ls", "--json").communicate(timeout=60)
            assert errors == ""
            seen.append(json.loads(out)[0]["step"])
        for words in (("rm", "-t", "task"), ("archive", "-t", "task"), ("migrate", "other", "-t", "task")):
            process = rla(root, *words, "-y")
            assert "being written" in process.communicate(timeout=60)[1]
            assert process.returncode == 1
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]
    assert {name.split("/", 1)[0] for name in tree(root)} <= set(DEFAULT_LOG_TYPES)


@pytest.mark.slow
def test_killed_at_random_while_copying_much(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    for number in range(200):
        (root / "results" / "task" / index / f"{number}-figure.png").write_bytes(os.urandom(20_000))
    before = tree(root)
    chance = random.Random(1)
    for _ in range(4):
        process = rla(root, "archive", "-t", "task", "-y")
        try:
            process.wait(0.25 + chance.random() * 0.4)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        process.communicate()
        archived = {name for name in tree(root) if name.startswith("arc/")}
        assert len(archived) in {0, len(before)} or (root / ".rla" / "copies").exists()
    with changing(root, time.time()):
        archived = {name for name in tree(root) if name.startswith("arc/")}
        assert len(archived) in {0, len(before)}
