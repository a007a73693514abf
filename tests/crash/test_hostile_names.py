"""Hostile names: nothing is made outside of the data root, what is taken is readable back, nobody falls over."""

# ruff: noqa: E501
from __future__ import annotations

import contextlib
import csv
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash.conftest import BareAgent
from crash.hostile import FOLDERS, MARK, Sandbox, frames_with, hostile_names, opening, some, write_frames
from support.lone import LoneStream, Side
from support.replication_lab import Node, Sshd, tree
from support.waiting import wait_until

from rla_agent.pipeline.item_files import keep_new_files
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.replicate.registry import register
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import stream_names
from rla_client.readers import read_csv

TRAINING = Path(__file__).with_name("hostile_training.py")
QUICK = 30
ALL = 10_000
SECRETS = 40
FILES_AT_ONCE = 5  # the agent takes them in while the other side stands still; so again and again
SECRET = b"a secret that nobody may copy"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@pytest.fixture
def sandbox(tmp_path: Path, places: Places) -> Sandbox:
    places.create()
    logs = [
        tmp_path / "bare-agent.log",
        tmp_path / "told.json",
        tmp_path / "names.json",
        tmp_path / "sshd",
        tmp_path / "node",
    ]
    return Sandbox(tmp_path, places.state, *logs)


def names_of(sandbox: Sandbox, count: int) -> list[str]:
    names = hostile_names(sandbox.outside)
    assert len(names) >= 500
    return some(names, count)


counts = pytest.mark.parametrize("count", [QUICK, pytest.param(ALL, marks=pytest.mark.soak)])


def storable(name: str) -> str:
    """How a name with lone surrogates is written where only Unicode text can be."""
    return name.encode("utf-8", "backslashreplace").decode()


@pytest.mark.slow
@counts
@pytest.mark.timeout(900)
def test_names_through_the_client(
    count: int,
    sandbox: Sandbox,
    places: Places,
    bare_agent: BareAgent,
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    names = names_of(sandbox, count)
    (tmp_path / "names.json").write_text(json.dumps(names))
    places.stopped_marker.touch()
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    done = subprocess.run(
        [sys.executable, str(TRAINING), str(sandbox.root), str(tmp_path / "names.json"), str(tmp_path / "told.json")],
        env={**os.environ, "PYTHONPATH": os.getcwd()}, cwd=sandbox.root, capture_output=True, text=True, timeout=600,
        check=False, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    bare_agent.drain(wait_until, 60 + len(names))
    told = json.loads((tmp_path / "told.json").read_text())
    assert sandbox.escaped() == []
    never = {
        use: sum("refused" in str(what) for what in told[use].values())
        for use in ("table", "checkpoint", "image")
    }
    check_tables(sandbox.root, told["table"], names)
    check_one_run(told, names)
    print(f"{len(names)} names through the client; refused: {never}; nothing outside of the data root")


def check_tables(root: Path, told: dict[str, Any], names: list[str]) -> None:
    """A table is refused, or is a folder of exactly this name; its run gives the name back."""
    taken = {name: what for name, what in told.items() if "refused" not in what}
    assert 0 < len(taken) < len(told)
    for number, name in enumerate(names):
        if name not in taken:
            continue
        log = Path(taken[name]["log"])
        assert log.is_relative_to(root / "log" / name), (name, log)
        index = log.relative_to(root / "log" / name)
        assert len(index.parts) == 4, index
        kept = json.loads((root / "archive_tester" / name / f"{index}.json").read_text())
        assert kept["hyper_param"] == {"value": name, "number": number}, kept
        assert json.loads((log / "run.json").read_text())["state"] == "finished"
        assert storable(name).strip("\n") in (log / "log.txt").read_bytes().decode(), name


def check_one_run(told: dict[str, Any], names: list[str]) -> None:
    """Keys, parameters, checkpoints and pictures of these names."""
    log, results, checkpoints = (Path(told["run"][kind]) for kind in ("log", "results", "checkpoint"))
    with (log / "progress.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    (line,) = [json.loads(text) for text in (log / "progress.json").read_text().splitlines()]
    for number, name in enumerate(names):
        if name in {TIME_STEP, TIMESTAMP}:  # columns of each row
            continue
        assert float(row[storable(name).replace("\0", "\\x00")]) == number, name
        assert line[storable(name)] == number, name
    for name, what in told["checkpoint"].items():
        assert "refused" in str(what) or (checkpoints / f"{name}_0.pt").is_file(), name
    states = {path.parent.name for path in checkpoints.parents[4].rglob("*.state")}
    assert states <= {".resume"}, "a refused name was part of a path before"
    for use in ("image", "video"):
        for name, what in told[use].items():
            if "refused" in str(what):
                continue
            path = Path(what)
            assert path.is_relative_to(results)
            assert ".." not in path.parts
            assert path.is_file(), f"{use} {name!r}"


def test_a_carriage_return_does_not_tear_a_row(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    values = ["a\rb", "\r", "a\r\nb", "plain"]
    for value in values:
        lone.row({"a\rkey": value})
    with Side(lone) as side:
        side.read_all()
        assert side.commit()
    with (lone.root / "progress.csv").open(newline="") as file:
        assert [row["a\rkey"] for row in csv.DictReader(file)] == values


def test_a_nul_is_escaped_and_hides_no_row(tmp_path: Path) -> None:
    """Readers take a NUL for the tail of a power cut, and Python 3.10's writer refuses it."""
    lone = LoneStream(tmp_path)
    for value in ("a\0b", "plain"):
        lone.row({"a\0key": value})
    lone.row({"a\0key": "x", "late\0": "\r\0"})
    with Side(lone) as side:
        side.read_all()
        assert side.commit()
    frame = read_csv(lone.root / "progress.csv")
    assert list(frame["a\\x00key"]) == ["a\\x00b", "plain", "x"]
    assert frame["late\\x00"].tolist()[-1] == "\r\\x00"


def test_a_file_that_has_no_place_holds_nothing_up(tmp_path: Path) -> None:
    """Where an output or a folder is; the agent would try for ever, and its stream never come to an end."""
    lone = LoneStream(tmp_path)
    lone.row({"v": 1})
    for name in ("progress.csv", "log.txt", "run.json", "tb", "log.txt/x", "note.txt"):
        lone.writer.append(encode_frame(FrameKind.FILE, pack(["log", name, b"content"])), 0)
    with Side(lone) as side:
        side.read_all()
        keep_new_files(side.stream, side.faults, 0.0)
        assert side.commit()
        assert not side.stream.new_files
        assert sum("was not kept" in fault for fault in side.faults.values()) == 5
    assert (lone.root / "note.txt").read_bytes() == b"content"
    assert (lone.root / "progress.csv").read_text().count("\n") == 2


def kept_for_a_human(stream: Path, sandbox: Sandbox) -> bool:
    """Whether its opening frame is none that a client writes, or its root is not here: the doctor tells."""
    try:
        opened, _ = read_opening(stream)
    except RlaError:
        return True
    except FileNotFoundError:  # it went while we looked
        return False
    return not Path(opened.root).is_relative_to(sandbox.root)


@pytest.mark.slow
@counts
@pytest.mark.timeout(900)
def test_names_in_frames(
    count: int, sandbox: Sandbox, places: Places, bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    names = names_of(sandbox, count)
    whole = sandbox.root / "whole"
    for kind in FOLDERS:
        (whole / kind / "item").mkdir(parents=True)
    write_frames(places, opening(whole), [frame for name in names for frame in frames_with(name)])
    for number, name in enumerate(names):
        root = sandbox.root / f"run-{number}"
        (root / "log").mkdir(parents=True)
        row = encode_frame(FrameKind.ROW, pack([1, 1.5, {"x": 1.0}]))
        for changed in (
            {"folders": {"log": name, "checkpoint": name}},
            {"root": name},
            {"folders": {"log": "log"}, "names": {"csv": name, "tensorboard": name}},
            {"folders": {"log": "log"}, "label": name, "primary": False},
            {"folders": {"log": "log"}, "run": name, "table": name, "index": name, "host": name},
        ):
            write_frames(places, opening(root, **changed), [row])
    bare_agent.spawn()
    wait_until(
        lambda: all(kept_for_a_human(places.spool / name, sandbox) for name in stream_names(places.spool)), 60 + len(names),
        what="each stream taken in or set aside",
    )  # fmt: skip
    assert bare_agent.serves()
    assert sandbox.escaped() == []
    made = [path for path in whole.rglob("*") if path.is_file()]
    contents = [path for path in made if path.read_bytes() == b"content"]
    assert len(contents) > len(names), "files with names that are harmless are to be kept"
    print(
        f"{len(names)} names in frames of {1 + 5 * len(names)} streams: {len(contents)} files, nothing outside"
    )


class Swapping:
    """A thread that exchanges a folder for a link to `target` and back, as fast as it goes."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.swaps = 0
        self._folder = folder
        self._other = folder.with_name(".other")
        self._target = target
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Swapping:  # noqa: PYI034
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._other.symlink_to(self._target)
        ours, other = os.fsencode(self._folder), os.fsencode(self._other)
        while not self._over.is_set() or self.swaps % 2:
            done = libc.renameat2(AT_FDCWD, ours, AT_FDCWD, other, RENAME_EXCHANGE)
            assert done == 0, os.strerror(ctypes.get_errno())
            self.swaps += 1
        self._other.unlink()


def race(
    sandbox: Sandbox, places: Places, agent: BareAgent, wait_until: Callable[..., object], files: int
) -> tuple[int, int]:
    """Files into a folder that is exchanged meanwhile; how many arrived, and the exchanges."""
    for kind in FOLDERS:
        (sandbox.root / kind / "item" / "sub").mkdir(parents=True)
    sub = sandbox.root / "results" / "item" / "sub"
    frames = [
        encode_frame(FrameKind.FILE, pack(["results", f"sub/{MARK}-{number}", b"content"]))
        for number in range(files)
    ]
    agent.spawn()
    wait_until(agent.serves)
    with Swapping(sub, sandbox.outside / "folder") as swapping:
        for begin in range(0, files, FILES_AT_ONCE):
            before = swapping.swaps
            wait_until(lambda before=before: swapping.swaps > before, what="exchanges")
            write_frames(places, opening(sandbox.root), frames[begin : begin + FILES_AT_ONCE])
            agent.drain(wait_until, 60)
    last = encode_frame(FrameKind.FILE, pack(["results", f"sub/{MARK}-last", b"content"]))
    write_frames(places, opening(sandbox.root), [last])
    agent.drain(wait_until, 60)
    assert (sub / f"{MARK}-last").exists(), "a file that meets no link is kept"
    assert sandbox.escaped() == []
    there = {path.name for path in (sandbox.root / "results" / "item").rglob("*") if path.is_file()}
    return len(there), swapping.swaps


@pytest.mark.slow
@pytest.mark.parametrize("files", [40, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.timeout(900)
def test_a_folder_that_is_swapped_for_a_link(
    files: int, sandbox: Sandbox, places: Places, bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    there, swaps = race(sandbox, places, bare_agent, wait_until, files)
    print(f"{there} files while their folder was {swaps} times a link out of the data root; nothing outside")
    assert swaps >= files // FILES_AT_ONCE


@pytest.fixture
def pair(sandbox: Sandbox, tmp_path: Path) -> Iterator[tuple[Node, Sshd]]:
    server = Sshd(tmp_path / "sshd").start()
    node = Node(tmp_path / "node", server.remote())
    register(node.state, node.root, node.config)
    yield node, server
    node.kill()
    server.stop()


def put_named(folder: Path, name: str) -> bool:
    """A file of this name, if a file system can hold it; names of our own temp files stay here."""
    if name.startswith(TEMP_PREFIX):
        return False
    raw = os.fsencode(name) if not any("\ud800" <= one <= "\udbff" for one in name) else b""
    try:
        with open(os.path.join(os.fsencode(folder), raw.replace(b"/", b"_")), "xb") as file:
            file.write(name.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError):
        return False
    return True


@counts
@pytest.mark.timeout(600)
def test_names_on_their_way_to_the_master(count: int, sandbox: Sandbox, pair: tuple[Node, Sshd]) -> None:
    node, master = pair
    folder = node.item("results")
    kept = sum(put_named(folder, name) for name in names_of(sandbox, count))
    node.run(state="finished")
    node.start()

    def sent() -> dict[str, str]:
        return {path: sha for path, sha in tree(node.root).items() if path.startswith("results/")}

    wait_until(lambda: sent().items() <= tree(master.root).items(), 120, "the same names on the master")
    there = {path for path in tree(master.root) if path.startswith("results/")}
    assert there == set(sent())
    assert sandbox.escaped() == []
    print(f"{kept} files of hostile names are on the master under the same names")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2.0, pytest.param(30.0, marks=pytest.mark.soak)])
@pytest.mark.timeout(600)
def test_what_a_link_shows_is_never_sent(seconds: float, sandbox: Sandbox, pair: tuple[Node, Sshd]) -> None:
    """The replicator reads while a folder is exchanged for a link to somebody's secret, of the same names."""
    node, master = pair
    secrets = sandbox.outside / "folder"
    sub = node.item("results") / "sub"
    sub.mkdir()
    node.run(state="running")
    node.start()
    for number in range(SECRETS):
        (sub / f"{number}").write_bytes(b"mine")
        (secrets / f"{number}").write_bytes(SECRET)
    with Swapping(sub, secrets) as swapping:
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until:
            number += 1
            (secrets / f"{number % SECRETS}").write_bytes(
                SECRET * (1 + number % 7)
            )  # it has changed: look again
            (sub.parent / "touched").write_bytes(b"mine" * number)
            threading.Event().wait(0.02)
    (sub / "last").write_bytes(b"mine")
    node.run(state="finished")
    wait_until(lambda: any(path.endswith("sub/last") for path in tree(master.root)), 120, "the last file")
    contents = []
    for path in master.root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temp file that got its name meanwhile
            contents += [path.read_bytes()] if path.is_file() else []
    assert contents
    assert not any(b"secret" in content for content in contents)
    print(f"a folder was {swapping.swaps} times exchanged with a link to {SECRETS} secrets: none was sent")
