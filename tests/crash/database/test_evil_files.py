"""A database that somebody else has prepared: files that are none, bombs, and links to other places."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.contract.errors import DatabaseError, RlaError
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.trash import TRASH_DAYS, move_to_trash, trash_entries
from rla_client.database.records.notes import change_note
from rla_client.database.records.record_reader import read_record
from rla_client.database.tree.items import run_items

MakeRun = Callable[..., str]
Evil = Callable[[Path], object]
MEMORY_BYTES = 3 << 29  # 1.5 GiB of addresses: what `rla ls` of good runs takes, and some
DEADLINE_S = 120

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join(['*' + before] * 9)}]}}\n"
    for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
)
LONG = "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 50_000) + "]\n"


def text(content: str) -> Evil:
    return lambda path: path.write_text(content)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its address is short
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def link(target: str) -> Evil:
    return lambda path: path.symlink_to(target)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


def sparse_table(path: Path) -> None:
    path.write_text('time-step,"a"\n1,"b"\n')
    os.truncate(path, 10 << 30)


EVIL: list[tuple[str, str, Evil]] = [
    ("hyperparameter", "parameter.yaml", text(LAUGHS)),
    ("hyperparameter", "parameter.yaml", text(MERGES)),
    ("hyperparameter", "parameter.yaml", text(LONG)),
    ("hyperparameter", "parameter.yaml", text("a: &a [*a]\n")),
    ("hyperparameter", "parameter.yaml", text("a: " + "[" * 100_000)),
    ("hyperparameter", "parameter.yaml", text("a:\n" + "- \n" * 1_000_000)),
    ("hyperparameter", "parameter.yaml", text("a: [0x" + "f" * 100_000 + "]\n")),
    ("hyperparameter", "parameter.yaml", text("a: " + "1" * 100_000 + "\n")),
    ("hyperparameter", "parameter.yaml", text("%TAG !a! b\n" * 200_000 + "--- {}\n")),
    ("hyperparameter", "parameter.yaml", pipe),
    ("hyperparameter", "parameter.json", pipe),
    ("hyperparameter", "parameter.json", sparse),
    ("hyperparameter", "parameter.json", Path.mkdir),
    ("hyperparameter", "parameter.json", text('{"a":' + "[" * 900 + "]" * 900 + "}")),
    ("hyperparameter", "parameter.json", text('{"a":' + "[" * 2_000_000)),
    ("hyperparameter", "parameter.json", text('{"a": [' + "{}," * 1_000_000 + "{}]}")),
    ("hyperparameter", "parameter.json", text('{"a": ' + "1" * 5000 + "}")),
    ("log", "run.json", pipe),
    ("log", "run.json", unix_socket),
    ("log", "run.json", link("/dev/zero")),
    ("log", "run.json", sparse),
    ("log", "run.json", text("[" * 100_000)),
    ("log", "note.json", link("/etc/passwd")),
    ("log", "progress.csv", pipe),
    ("log", "progress.csv", link("/dev/zero")),
    ("log", "progress.csv", text("," * 8_000_000 + "\n")),
    ("log", "progress.csv", sparse),
]
HARMLESS: list[tuple[str, str, Evil]] = [  # of these nothing is told: they are read as far as they go
    ("log", "progress.csv", sparse_table),
    ("log", "run.json", text('{"opened": 1' + "0" * 400 + ', "updated": 1e999, "time_step": NaN}')),
    ("log", "run.json", text('{"opened": 1e18, "state": "running", "updated": -1e18, "closed": 1e300}')),
    ("hyperparameter", "parameter.yaml", text("base: &b {lr: 1}\nother:\n  <<: *b\n  x: [*b, *b]\n")),
]


def put(root: Path, index: str, evil: tuple[str, str, Evil]) -> None:
    kind, name, make = evil
    folder = root / kind / "task" / index
    for old in (folder / name, *folder.glob("parameter.*" if kind == "hyperparameter" else name)):
        old.unlink(missing_ok=True)
    make(folder / name)


def limited(times: int = 1) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (times * MEMORY_BYTES, times * MEMORY_BYTES))


def rla(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rla_client.cli.app", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        preexec_fn=limited,
        env={**os.environ, "RLA_DATA_ROOT": str(root), "OPENBLAS_NUM_THREADS": "1"},
    )


@pytest.fixture
def evil_runs(root: Path, make_run: MakeRun) -> list[str]:
    """Indices of one run for each of EVIL and HARMLESS; all of them have good parameters beside."""
    indices = []
    for number, evil in enumerate([*EVIL, *HARMLESS]):
        indices.append(make_run(number=number, kinds=("log", "hyperparameter")))
        put(root, indices[-1], evil)
    return indices


@pytest.mark.slow
def test_lists_name_the_evil_files_and_show_the_other_runs(
    root: Path, make_run: MakeRun, evil_runs: list[str]
) -> None:
    good = make_run(number=59)
    done = rla(root, "ls", "--json", "-n", "100")
    assert done.returncode == 0, done.stderr[-2000:]
    shown = {row["run"]: row for row in json.loads(done.stdout)}
    assert shown.keys() == {good, *evil_runs}
    assert shown[good]["step"] == 9
    plain = rla(root, "ls", "-n", "100")
    assert f"{len(EVIL)} run(s) with unreadable files" in plain.stderr
    for index, (kind, name, _) in zip(evil_runs, EVIL, strict=False):
        (problem,) = read_record(root, "task", index, ()).problems
        assert f"{kind}/task/{index}/{name} cannot be read" in problem
        assert problem.startswith("parameters unreadable: ") is (kind == "hyperparameter")
    for index in evil_runs[len(EVIL) :]:
        assert read_record(root, "task", index, ()).problems == ()


EVERY_COMMAND = """
import sys
from rla_client.cli.app import make_app
from rla_client.contract.errors import RlaError
import typer, click
app = make_app()
for line in sys.stdin.read().splitlines():
    print("--", line, flush=True)
    try:
        app(line.split(), standalone_mode=False)
    except (RlaError, click.exceptions.ClickException, typer.Exit, SystemExit) as error:
        print(str(error)[:200])
"""
OF_ONE = ["show {}", "tail {}", "tail {} --file progress", "diff {} @last"]
OF_ALL = ["plot return -o {out}/a.png", "fsck", "du", "compare", "export {out}/a.csv", "ls",
          "archive @last -y", "fsck --fix", "rm -t task -y"]  # fmt: skip


@pytest.mark.slow
def test_no_command_hangs_or_breaks_at_an_evil_file(
    root: Path, tmp_path: Path, make_run: MakeRun, evil_runs: list[str]
) -> None:
    make_run(number=59)
    lines = [line.format(index, out=tmp_path) for index in evil_runs for line in OF_ONE]
    lines += [line.format(out=tmp_path) for line in OF_ALL]
    done = subprocess.run(
        [sys.executable, "-c", EVERY_COMMAND],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
        env={**os.environ, "RLA_DATA_ROOT": str(root), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: limited(2),  # pandas and matplotlib come on top
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert done.stdout.count("-- ") >= len(lines)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user that no database has to do with, laid out as what links in one look for."""
    folder = tmp_path / "outside"
    for name in ("copies/mine", "trash/mine", "trash/gone-mine", "items", "thesis"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("mine")
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


LINKS = [
    ".rla",
    ".rla/copies",
    ".rla/trash",
    ".rla/copies/x",
    ".rla/trash/gone-x",
    ".rla/trash/x",
    "log/.rla",
]


@pytest.mark.slow
@pytest.mark.parametrize("place", LINKS)
def test_links_in_the_hidden_folders_lead_no_deletion_outside(
    root: Path, outside: Path, make_run: MakeRun, place: str
) -> None:
    make_run()
    before = content(outside)
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(outside)
    assert rla(root, "ls").returncode == 0
    with contextlib.suppress(RlaError), changing(root, 1e9):
        pass
    done = rla(root, "rm", "-t", "task", "-y")
    assert "Traceback" not in done.stderr
    rla(root, "trash", "empty", "-y")
    assert content(outside) == before


JOURNALS = [
    [["../outside/thesis", ".rla/trash/20200101-000000-x/items/t"]],
    [["log/../../outside/thesis", ".rla/trash/20200101-000000-x/items/t"]],
    [["{outside}/thesis", ".rla/trash/20200101-000000-x/items/t"]],
    [["log/task", "../outside/trash/20200101-000000-x/y"]],
    [["log/task", "{outside}/trash/20200101-000000-x/y"]],
    [["log/x/thesis", ".rla/trash/20200101-000000-x/items/t"]],  # log/x is a link
    [["log/task", "log/x/new"]],
    [["log/task"]], [7], 7, [["a", 7]], [["a\0", "b"]],
]  # fmt: skip


@pytest.mark.parametrize("moves", JOURNALS)
@pytest.mark.parametrize("state", ["moving", "done", "restoring"])
@pytest.mark.parametrize("kind", ["trash", "copies"])
def test_a_journal_of_somebody_else_moves_nothing_in_or_out(
    root: Path, outside: Path, make_run: MakeRun, moves: object, state: str, kind: str
) -> None:
    index = make_run()
    (root / "log" / "x").symlink_to(outside)
    entry = root / ".rla" / kind / "20200101-000000-x"
    entry.mkdir(parents=True)
    plain = json.dumps({"format": 1, "created": 1e9, "state": state, "moves": moves})
    (entry / "entry.json").write_text(plain.replace("{outside}", str(outside)))
    (outside / "trash" / "20200101-000000-x").mkdir()
    (outside / "trash" / "20200101-000000-x" / "file").write_text("mine")
    before = content(outside)
    for now in (1e9, 1e9 + 1, 1e9 + TRASH_DAYS * 86400 + 1):
        with changing(root, now):
            trash_entries(root)
    assert content(outside) == before
    assert (root / "log" / "task" / index / "progress.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("depth", ["task", "task/2026", "task/2026/11", "task/2026/11/21"])
def test_nothing_behind_a_link_below_a_kind_is_changed(
    root: Path, tmp_path: Path, make_run: MakeRun, depth: str
) -> None:
    index = make_run(kinds=("log", "hyperparameter"))
    away = tmp_path / "away"
    (root / "log" / depth).rename(away)
    (root / "log" / depth).symlink_to(away)
    before = content(away)
    with changing(root, 1e9):
        with pytest.raises(DatabaseError, match="link"):
            move_to_trash(root, run_items(root, "task", index), 1e9)
        with pytest.raises(DatabaseError, match="of its own"):
            change_note(root, read_record(root, "task", index, ()), add=["x"])
    for command in ("fsck --fix", "archive @last -y", "rm -t task -y"):
        assert "Traceback" not in rla(root, *command.split()).stderr
    assert content(away) == before


def test_a_kind_on_another_disk_is_used_through_its_link(
    root: Path, tmp_path: Path, make_run: MakeRun
) -> None:
    index = make_run()
    (root / "log").rename(tmp_path / "disk")
    (root / "log").symlink_to(tmp_path / "disk")
    before = content(tmp_path / "disk")
    with changing(root, time.time()):
        change_note(root, read_record(root, "task", index, ()), add=["x"])
        (tmp_path / "disk" / "task" / index / "note.json").unlink()
        name = move_to_trash(root, run_items(root, "task", index), time.time())
    assert not (tmp_path / "disk" / "task" / index).exists()
    assert rla(root, "trash", "restore", name).returncode == 0
    assert content(tmp_path / "disk") == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a link of somebody else")
def test_a_kind_link_of_somebody_else_is_refused(root: Path, outside: Path, make_run: MakeRun) -> None:
    index = make_run(kinds=("hyperparameter",))
    (outside / "task" / index).mkdir(parents=True)
    (outside / "task" / index / "file").write_text("mine")
    before = content(outside)
    (root / "log").symlink_to(outside)
    os.lchown(root / "log", 12345, 12345)
    with changing(root, 1e9), pytest.raises(DatabaseError, match="link"):
        move_to_trash(root, run_items(root, "task", index), 1e9)
    assert content(outside) == before
