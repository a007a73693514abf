from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rla_client.database.changes import (
    TRASH_DAYS,
    changing,
    empty_trash,
    move_to_trash,
    restore_trash,
    trash_entries,
)
from rla_client.database.tree import run_items
from rla_client.errors import DatabaseError, LiveRunError

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


def test_the_trash_is_emptied_after_its_days(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    with changing(root, 1000.0):
        move_to_trash(root, run_items(root, "task", index), 1000.0)
    with changing(root, 1000.0 + TRASH_DAYS * 86400 - 1):
        assert len(trash_entries(root)) == 1
    with changing(root, 1000.0 + TRASH_DAYS * 86400):
        assert trash_entries(root) == []
        assert empty_trash(root, 0.0) == 0


def test_a_live_run_is_refused(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run(state="running")
    with changing(root, time.time()), pytest.raises(LiveRunError, match="09-30-00"):
        move_to_trash(root, run_items(root, "task", index), time.time())
    assert len(run_items(root, "task", index)) == KINDS


def rla(root: Path, *words: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "rla_client.database.cli",
        words[0],
        "--data-root",
        str(root),
        *words[1:],
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )


COMMANDS = ("rm", "archive", "migrate")


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_some_renames_nothing_is_half(tmp_path: Path, command: str) -> None:
    kill_at_renames(tmp_path, command, (2, 8, 15))


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_every_rename_nothing_is_half(tmp_path: Path, command: str) -> None:
    kill_at_renames(tmp_path, command, range(1, 40))


def kill_at_renames(tmp_path: Path, command: str, calls: Iterable[int]) -> None:
    """SIGKILL at the k-th rename, then the next command: each item whole, in one place."""
    if not any(os.access(Path(folder, "strace"), os.X_OK) for folder in os.environ["PATH"].split(":")):
        pytest.skip("strace is not installed")
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("look_alike", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    look_alike = module_from_spec(spec)
    spec.loader.exec_module(look_alike)
    words = {"rm": ["rm"], "archive": ["archive"], "migrate": ["migrate", "other"]}[command]
    for call in calls:
        root = tmp_path / f"db {call}"
        root.mkdir()
        indices = [look_alike.write_run(root, number=number) for number in range(2)]
        before = tree(root)
        line = [
            sys.executable,
            "-m",
            "rla_client.database.cli",
            words[0],
            "-d",
            str(root),
            *words[1:],
            "-t",
            "task",
            "-y",
        ]
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
        if command == "rm":
            removed = len(before) - len(after)
            assert removed in {0, len(before)}
            assert after == ({} if removed else before)
            continue
        assert {name: after[name] for name in before} == before
        prefix = "arc/{kind}/task/" if command == "archive" else "{kind}/other/"
        for index in indices:
            copies = [name for name in after if index in name and name not in before]
            originals = [name for name in before if index in name]
            assert len(copies) in {0, len(originals)}, (call, copies)
            for name in originals:
                kind, rest = name.split("/task/")
                copy = prefix.format(kind=kind) + rest
                assert copy not in after or after[copy] == before[name]


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
