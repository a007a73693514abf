"""A sweep on disk, whatever happens to its writer."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from rla_client.sweep import journal as module
from rla_client.sweep.driver_setup import begin
from rla_client.sweep.journal import FOLDER, FORMAT, JOURNAL, Journal, SweepError, names
from rla_client.sweep.run_state import FINISHED, RUNNING, WAITING, SweepRun

WANTED: list[tuple[int, dict[str, Any]]] = [
    (1, {"lr": 0.1, "seed": 0}),
    (1, {"lr": 0.1, "seed": 1}),
    (2, {"lr": 1, "seed": 0}),
]
KILLED_AT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from rla_client.sweep.journal import Journal
left = int(sys.argv[2])
write = os.write
def counted(descriptor, data):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    if left == 0:
        data = data[: len(data) // 2]
    return write(descriptor, data)
journal = Journal(Path(sys.argv[1]), "lr")
os.write = counted
journal.hold()
for run in journal.plan([(1, {"x": n}) for n in range(3)]):
    if run.state == "waiting":
        journal.tell(run, "started", engine="local")
    if run.state == "running":
        journal.tell(run, "placed", handle="7")
        journal.tell(run, "finished")
journal.plan([(1, {"x": n}) for n in range(5)])
os.write = write
print("done")
"""


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    held = Journal(tmp_path / "dä ta", "lr").hold()
    yield held
    held.release()


def again(journal: Journal) -> Journal:
    return Journal(journal.data_root, journal.name).read()


def path_of(journal: Journal) -> Path:
    return journal.folder / JOURNAL


def test_what_was_told_is_read_again(journal: Journal, tmp_path: Path) -> None:
    first, second, _ = journal.plan(WANTED)
    journal.tell(first, "started", engine="local")
    journal.tell(first, "placed", handle="7")
    journal.tell(second, "started", engine="local")
    journal.tell(second, "failed", reason="exit status 1: ü", again=True)
    found = again(journal)
    assert found.runs == journal.runs
    assert (found.ident, found.begun_in) == (journal.ident, os.getcwd())
    assert (found.runs[1].state, found.runs[1].handle, found.runs[2].reason) == (
        RUNNING,
        "7",
        "exit status 1: ü",
    )
    assert names(journal.data_root) == ["lr"]
    assert path_of(journal).stat().st_mode & 0o777 == 0o600


def test_only_what_is_new_is_planned(journal: Journal) -> None:
    first = journal.plan(WANTED)
    more = journal.plan([*WANTED, (3, {"lr": 5, "seed": 0})])
    assert more[:3] == first
    assert [run.number for run in more] == [1, 2, 3, 4]
    assert journal.plan(WANTED[1:2]) == first[1:2]
    assert [run.number for run in journal.plan([WANTED[0], WANTED[0]])] == [1, 5], "wanted twice: run twice"
    assert [run.number for run in journal.plan([WANTED[0]], anew=True)] == [6]
    assert again(journal).runs == journal.runs


def test_numbers_that_are_equal_are_not_the_same_choice(journal: Journal) -> None:
    assert (
        len({run.number for run in journal.plan([(1, {"x": value}) for value in (1, 1.0, True, "1", None)])})
        == 5
    )


@pytest.mark.slow
def test_a_journal_that_ends_anywhere(journal: Journal) -> None:
    for run in journal.plan(WANTED):
        journal.tell(run, "started", engine="local")
        journal.tell(run, "finished")
    whole = path_of(journal).read_bytes()
    journal.release()
    first = whole.index(b"\n") + 1
    for length in range(first - 1, len(whole)):
        path_of(journal).write_bytes(whole[:length])
        lines = whole[:length].count(b"\n") + (length < len(whole) and whole[length : length + 1] == b"\n")
        other = Journal(journal.data_root, "lr").hold()
        assert len(other.runs) == min(max(lines - 1, 0), 3)
        assert sum(run.attempts for run in other.runs.values()) == sum(n <= lines for n in (5, 7, 9))
        for run in other.plan(WANTED):
            if run.state == WAITING:
                other.tell(run, "started", engine="local")
            if run.state == RUNNING:
                other.tell(run, "finished")
        other.release()
        found = again(journal)
        assert found.ident == journal.ident
        assert [(run.number, run.state, run.parameters) for run in found.runs.values()] == [
            (number, FINISHED, parameters) for number, (_, parameters) in enumerate(WANTED, 1)
        ]


def test_the_first_line_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*FOLDER, "lr")
    folder.mkdir(parents=True)
    (folder / JOURNAL).write_bytes(b"")
    with pytest.raises(SweepError, match="is not a journal of a sweep"):
        Journal(tmp_path, "lr").read()
    with pytest.raises(SweepError, match="is not a journal of a sweep"):
        Journal(tmp_path, "lr").hold()
    (folder / JOURNAL).unlink()
    Journal(tmp_path, "lr").hold().release()


@pytest.mark.parametrize("content", [b"\0" * 4096, b"{}\n", b"[1]\n", os.urandom(1000), b"{" * 300_000])
def test_what_is_no_journal_is_told_and_left_alone(journal: Journal, content: bytes) -> None:
    journal.release()
    path_of(journal).write_bytes(content)
    for call in (Journal(journal.data_root, "lr").read, Journal(journal.data_root, "lr").hold):
        with pytest.raises(SweepError, match="is not a journal of a sweep"):
            call()
    assert path_of(journal).read_bytes() == content
    assert journal.driver() is None, "the lock is free again"


@pytest.mark.parametrize(
    "line",
    [
        {"event": "started", "run": [1]}, {"event": "started", "run": None},
        {"event": "started", "run": 10**30},
        {"event": "started", "run": 1, "time": "x"}, {"event": "started", "run": 1, "time": 1e999},
        {"event": "planned", "run": 9}, {"event": "planned", "run": "x", "trial": 1, "parameters": {}},
        {"event": "planned", "run": -1, "trial": 1, "parameters": {}}, {"event": {}, "run": 1}, {"run": 1},
        [], 3, None,
        {"event": "finished", "run": 1},
    ],
)  # fmt: skip
def test_a_line_that_says_nothing_is_passed_over(journal: Journal, line: Any) -> None:
    journal.plan(WANTED)
    with path_of(journal).open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert again(journal).runs == journal.runs


def test_a_planned_line_that_was_lost_leaves_its_number_free(journal: Journal) -> None:
    journal.plan(WANTED)
    lines = path_of(journal).read_bytes().splitlines(keepends=True)
    journal.release()
    path_of(journal).write_bytes(b"".join([*lines[:2], b"\0" * len(lines[2]), b"\n", *lines[3:]]))
    other = Journal(journal.data_root, "lr").hold()
    assert [run.number for run in other.plan(WANTED)] == [1, 4, 3]
    other.release()


def test_another_release(journal: Journal) -> None:
    journal.release()
    path_of(journal).write_text(
        json.dumps({"event": "sweep", "format": FORMAT + 1, "ident": "a", "folder": "/"}) + "\n"
    )
    with pytest.raises(SweepError, match="the sweep 'lr' was made by another release of rla"):
        Journal(journal.data_root, "lr").hold()
    assert journal.driver() is None


def test_a_second_driver_is_told_of_the_first(journal: Journal) -> None:
    with pytest.raises(SweepError) as caught:
        Journal(journal.data_root, "lr").hold()
    assert f"is being run already by process {os.getpid()} on " in str(caught.value)
    assert "hint: `rla sweep status lr` shows it, `rla sweep stop lr` ends it" in str(caught.value)
    assert again(journal).driver() == os.getpid()
    journal.release()
    assert again(journal).driver() is None
    Journal(journal.data_root, "lr").hold().release()


def test_what_cannot_be_started_takes_no_sweep_of_another_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins a sweep of that name after this one saw none, and ends before this one."""
    monkeypatch.setattr(module, "LOCK_S", 60.0)
    spec = tmp_path / "lr.yaml"
    spec.write_text("command: 'true'\nresources: {cpus: 4096}\n")
    other = Journal(tmp_path / "other", "lr").hold()
    other.plan(WANTED)
    folder = tmp_path.joinpath(*FOLDER, "lr")
    folder.mkdir(parents=True)
    with open(folder / "driver.lock", "w") as lock, ThreadPoolExecutor() as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        late = pool.submit(begin, spec, tmp_path, "local", on_look=lambda *_: None)
        wait_until((folder / "runs").exists)  # it is about to hold the sweep
        shutil.copy(path_of(other), folder)
        fcntl.flock(lock, fcntl.LOCK_UN)
        with pytest.raises(SweepError, match="this machine has"):
            late.result()
    assert len(Journal(tmp_path, "lr").read().runs) == len(WANTED)
    other.release()


def test_a_sweep_that_is_discarded_is_begun_anew_by_who_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_S", 60.0)
    first, second = Journal(tmp_path, "lr").hold(), Journal(tmp_path, "lr")
    with ThreadPoolExecutor() as pool:
        late = pool.submit(second.hold)
        wait_until(lambda: second._lock is not None)
        first.discard()
        first.release()
        late.result()
    assert second.ident != first.ident
    assert Journal(tmp_path, "lr").read().ident == second.ident
    second.discard()
    second.release()
    assert not second.exists()


def test_who_looks_is_in_nobodys_way(journal: Journal) -> None:
    journal.release()
    for _ in range(200):
        reader, writer = again(journal), Journal(journal.data_root, "lr")
        assert reader.driver() is None
        writer.hold().release()


def test_a_request(journal: Journal) -> None:
    assert journal.requested() == ""
    again(journal).request("stop")
    assert journal.requested() == "stop"
    journal.release()
    journal.hold()
    assert journal.requested() == "", "it was for the driver before"


@pytest.mark.parametrize("at", range(1, 13))
def test_a_driver_that_is_killed_in_any_line(tmp_path: Path, at: int) -> None:
    repository = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", KILLED_AT, str(tmp_path)]
    first = subprocess.run([*command, str(at), repository], check=False, capture_output=True)
    assert first.returncode == (-9 if at < 12 else 0), first.stderr
    last = subprocess.run([*command, "1000", repository], check=False, capture_output=True, text=True)
    assert last.stdout == "done\n", last.stderr
    found = Journal(tmp_path, "lr").read()
    assert [(run.parameters["x"], run.state) for run in found.runs.values()] == [
        (n, FINISHED if n < 3 else WAITING) for n in range(5)
    ]


def test_a_full_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.plan(WANTED)
    write = os.write
    left = [10]

    def full(descriptor: int, data: Any) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(descriptor, data[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SweepError) as caught:
        journal.tell(journal.runs[1], "started", engine="local")
    assert str(path_of(journal)) in str(caught.value)
    assert "No space left on device\nhint: live runs continue; `rla sweep resume lr` supervises them" in str(
        caught.value
    )
    monkeypatch.undo()
    journal.release()
    other = Journal(journal.data_root, "lr").hold()
    other.tell(other.runs[1], "started", engine="local")
    assert again(other).runs == other.runs
    other.release()


def test_a_real_full_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "lr").hold()
    journal.release()
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    journal.hold()
    assert journal._file is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._file)
    os.close(full)
    with pytest.raises(SweepError, match="No space left"):
        journal.plan(WANTED)
    journal.release()
    assert again(journal).runs == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        Journal(tmp_path / "data", "lr").hold()


def test_a_name_that_there_is_not(journal: Journal) -> None:
    with pytest.raises(SweepError) as caught:
        Journal(journal.data_root, "lrr").read()
    assert "has no sweep 'lrr'\nhint: did you mean 'lr'?" in str(caught.value)
    assert names(journal.data_root / "none") == []


def test_exit_status(journal: Journal) -> None:
    run = SweepRun(1, 1, {})
    assert journal.exit_status(run) is None
    for text, expected in {
        "0\n": 0,
        "137\n": 137,
        "": None,
        "13": None,
        "x\n": None,
        "-1\n": None,
        "9" * 100: None,
    }.items():
        journal.path(run, "exit").write_text(text)
        assert journal.exit_status(run) == expected


def test_items(journal: Journal) -> None:
    run = SweepRun(1, 1, {})
    assert journal.items(run) == []
    item = {"data_root": "/d", "table": "t", "index": "i", "run_key": "k"}
    journal.path(run, "items").write_text(
        f'{json.dumps(item)}\n{{"table": 3}}\n[]\nx\n{json.dumps(item)}\n{{"torn'
    )
    assert journal.items(run) == [item, item]
    journal.path(run, "items").unlink()
    os.mkfifo(journal.path(run, "items"))
    assert journal.items(run) == []
