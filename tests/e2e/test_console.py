"""What trainings print, kept in their `console.txt`; real processes, with an agent beside them."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import wait_until

from rla_client.contract.agent.places import Places

HEAD = """
import ctypes, os, subprocess, sys, time
import rla_client

def begin(**further):
    config = {"LOG_USED": ["csv"], **further.pop("more", {})}
    return rla_client.init("table", data_root="data", rla_config=config, **further)
"""
KINDS = """
begin(console=True, config={"api_token": "sekret-value-123456"})
print("from python, token sekret-value-123456")
print("to stderr", file=sys.stderr)
subprocess.run(["sh", "-c", "echo child; echo child to stderr >&2"])
ctypes.CDLL(None).printf(b"from C\\n")
os.write(1, b"by the system \\xff\\n")
if os.fork() == 0:
    print("forked", flush=True)
    os._exit(0)
os.wait()
print("10%\\r100%")
print("no newline", end="")
"""


@pytest.fixture
def run(places: Places, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a training; `text` follows HEAD. The process beside it ends before the agent does."""

    def start(text: str, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        script = tmp_path / "training.py"
        script.write_text(HEAD + text)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path, **options}
        return subprocess.Popen([*command, sys.executable, str(script)], **options)

    yield start
    wait_until(lambda: not console_processes(tmp_path), 30, what="the end of the processes beside trainings")


def consoles(folder: Path) -> list[Path]:
    return sorted(folder.glob("data/log/table/*/*/*/*/console*.txt"))


def until_kept(folder: Path, last: str, number: int = 0) -> str:
    """The text of a console once it has `last`."""

    def kept() -> str:
        found = consoles(folder)
        text = found[number].read_text() if len(found) > number else ""
        return text if last in text else ""

    return str(wait_until(kept, 30, what=f"{last!r} in the console"))


def console_processes(folder: Path) -> list[psutil.Process]:
    """The processes of ours that pass on what trainings in a folder print."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "rla_client.run.console.console_process" in " ".join(
                process.cmdline()
            ) and process.cwd() == str(folder):
                found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_everything_that_is_printed(run: Callable[..., Any], tmp_path: Path) -> None:
    out, err = run(KINDS).communicate(timeout=60)
    for text in (b"token sekret-value-123456\n", b"child\n", b"from C\n", b"system \xff\n", b"forked\n"):
        assert out.count(text) == 1
    assert out.endswith(b"10%\r100%\nno newline")
    assert err == b"to stderr\nchild to stderr\n"
    kept = until_kept(tmp_path, "no newline").splitlines()
    for line in (
        "from python, token <hidden>",
        "to stderr",
        "child",
        "child to stderr",
        "from C",
        "forked",
        "100%",
    ):
        assert kept.count(line) == 1, kept
    assert "by the system \\xff" in kept
    (log,) = {path.parent for path in consoles(tmp_path)}
    # the console is a stream of its own
    wait_until(lambda: json.loads((log / "run.json").read_text())["state"] == "finished", what="its end")
    assert {path.name for path in log.iterdir() if path.suffix == ".txt"} == {
        "backup.txt",
        "console.txt",
        "warn.txt",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_one_file_has_both_in_order(run: Callable[..., Any], tmp_path: Path) -> None:
    out, _ = run(KINDS, stderr=subprocess.STDOUT).communicate(timeout=60)
    order = ["from python", "to stderr", "child", "child to stderr", "from C", "by the system", "forked"]
    kept = until_kept(tmp_path, "no newline").encode()
    for text in (out, kept):
        places = [text.index(word.encode()) for word in order]
        assert places == sorted(places)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_kill_takes_no_line(run: Callable[..., Any], tmp_path: Path) -> None:
    text = """
begin(console=True)
told = os.open("told", os.O_CREAT | os.O_WRONLY)
for number in range(10_000_000):
    print("line", number)
    os.pwrite(told, b"%d" % number, 0)
"""
    training = run(text, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text(), 30)
    time.sleep(random.Random(time.time_ns()).uniform(0.0, 0.5))
    training.kill()
    training.wait()
    told = int((tmp_path / "told").read_text())
    kept = until_kept(tmp_path, f"line {told}\n").splitlines()
    numbers = [line for line in kept if line.startswith("line ")]
    assert numbers[: told + 1] == [f"line {number}" for number in range(told + 1)]
    assert len(numbers) <= told + 2


def test_nobody_who_reads_is_waited_for(run: Callable[..., Any], tmp_path: Path) -> None:
    """A pipe that is full; without an agent."""
    text = """
begin(console=True, more={"AGENT": {"autostart": False}})
for number in range(20_000):
    print("x" * 100)
open("through", "w").close()
"""
    training = run(text)
    wait_until((tmp_path / "through").exists, 30)
    out, _ = training.communicate(timeout=60)
    assert out.count(b"x" * 100 + b"\n") == 20_000, "and the reader gets all of it later"


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_the_training_goes_on_without_the_process_beside_it(run: Callable[..., Any], tmp_path: Path) -> None:
    text = """
begin(console=True)
print("before")
sys.stdin.readline()
for number in range(200):
    print("after", number)
    time.sleep(0.002)
"""
    training = run(text, stdin=subprocess.PIPE)
    (beside,) = wait_until(lambda: console_processes(tmp_path), 30)
    until_kept(tmp_path, "before\n")
    assert b"before\n" in (training.stdout.readline(), training.stdout.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        beside.send_signal(number)
    beside.suspend()
    training.stdin.write(b"\n")
    training.stdin.flush()
    time.sleep(0.2)
    beside.kill()
    out, _ = training.communicate(timeout=60)
    assert training.returncode == 0
    assert [line for line in out.splitlines() if line.startswith(b"after")] == [
        b"after %d" % number for number in range(200)
    ]
    assert out.count(b"before") == 0, "nothing is passed on twice"
    warned = consoles(tmp_path)[0].with_name("warn.txt")
    wait_until(lambda: "the process that stores the output has ended" in warned.read_text(), 30)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_what_it_started_goes_on_without_that_process(run: Callable[..., Any], tmp_path: Path) -> None:
    text = """
begin(console=True)
script = "while [ ! -e go ]; do sleep 0.05; done; for n in 1 2 3; do seq 1000 || exit 1; done; echo child"
child = subprocess.Popen(["sh", "-c", script])
print("started")
print("child ended with", child.wait())
"""
    training = run(text, stderr=subprocess.DEVNULL)
    until_kept(tmp_path, "started\n")
    (beside,) = console_processes(tmp_path)
    beside.kill()
    (tmp_path / "go").touch()
    out, _ = training.communicate(timeout=60)
    lines = out.splitlines()
    assert b"child ended with 0" in lines, "no SIGPIPE"
    assert (lines.count(b"child"), lines.count(b"1000")) == (1, 3), "nothing is lost"


@pytest.mark.slow
@pytest.mark.parametrize("pause", ["0.02", "0"])
@pytest.mark.usefixtures("agent")
def test_the_file_has_a_bound(run: Callable[..., Any], tmp_path: Path, pause: str) -> None:
    text = """
begin(console=True, more={"AGENT": {"console_max_bytes": 4000}})
for number in range(1000):
    print("line", number)
    if number % 50 == 0:
        time.sleep(float(os.environ["PAUSE"]))
"""
    out, _ = run(text, env={**os.environ, "PAUSE": pause}).communicate(timeout=60)
    assert out.count(b"line") == 1000
    kept = until_kept(tmp_path, "line 999\n")
    assert "\nline 0\n" in kept
    assert "bytes left out ...]\n" in kept
    assert len(kept) < 4200
    assert "line 500\n" not in kept


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_each_run_of_a_process_has_its_own(run: Callable[..., Any], tmp_path: Path) -> None:
    text = """
for number in range(3):
    manager = begin(console=True)
    print("in run", number)
    manager.close()
    print("between")
"""
    out, _ = run(text).communicate(timeout=60)
    assert out.count(b"between\n") == 3
    for number in range(3):
        kept = until_kept(tmp_path, f"in run {number}\n", number)
        assert kept.count("in run") == 1
        assert "between" not in kept


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_run_that_goes_on_has_another_file(run: Callable[..., Any], tmp_path: Path) -> None:
    text = """
begin(console=True, run_id="one", resume="allow")
rla_client.exp_manager.save_checkpoint({"a": 1})
rla_client.exp_manager.flush()
print("pid", os.getpid())
time.sleep(float(os.environ["PAUSE"]))
"""
    first = run(text, env={**os.environ, "PAUSE": "60"})
    until_kept(tmp_path, f"pid {first.pid}\n")
    first.kill()
    first.communicate()
    second = run(text, env={**os.environ, "PAUSE": "0"})
    second.communicate(timeout=60)
    until_kept(tmp_path, f"pid {second.pid}\n", 0)
    assert [path.name for path in consoles(tmp_path)] == ["console.2.txt", "console.txt"]
    command = [sys.executable, "-m", "rla_client.cli.app", "tail", "--file", "console", "-d", "data"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert f"pid {second.pid}" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_terminal_stays_one(run: Callable[..., Any], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    text = 'begin(console=True)\nprint("terminal:", sys.stdout.isatty(), sys.stderr.isatty())\n'
    training = run(text, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 1000):
            shown += piece
    os.close(ours)
    assert training.wait() == 0
    assert b"terminal: True True\r\n" in shown
    until_kept(tmp_path, "terminal: True True\n")


@pytest.mark.further
@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_child_that_opens_its_output_again(run: Callable[..., Any], tmp_path: Path) -> None:
    """And a default timeout of sockets, which is not for ours."""
    training = run(
        """
import socket
socket.setdefaulttimeout(0.5)
begin(console=True)
for number in range(40):
    print(f"line {number}")
time.sleep(1.5)
subprocess.run(["sh", "-c", "echo child >/dev/stdout"])
for number in range(100):
    print(f"after {number}")
"""
    )
    out, err = training.communicate(timeout=60)
    lines = out.decode().splitlines()[1:]  # behind the one that says where the run lies
    assert lines == [f"line {n}" for n in range(40)] + ["child"] + [f"after {n}" for n in range(100)]
    assert b"has ended" not in err
    kept = until_kept(tmp_path, "after 99\n")
    assert all(f"\n{line}\n" in kept for line in ("line 39", "child", "after 0"))


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_run_beside_a_run(run: Callable[..., Any], tmp_path: Path) -> None:
    training = run(
        """
from rla_client.manager import ExpManager
begin(console=True)
print("first of the outer")
inner = ExpManager()
inner.configure("table", {"LOG_USED": ["csv"]}, data_root="data", console=True)
inner.log_files_gen()
print("of the inner")
inner.close()
print("last of the outer")
"""
    )
    _, err = training.communicate(timeout=60)
    assert training.returncode == 0, err
    words = ("first of", "of the inner", "last of")

    def kept() -> list[str]:
        texts = [path.read_text() for path in consoles(tmp_path)]
        return texts if all(sum(word in text for text in texts) == 1 for word in words) else []

    texts = wait_until(kept, 30, what="what both have printed")
    assert not any("of the inner" in text and "of the outer" in text for text in texts)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_by_configuration_and_only_once(run: Callable[..., Any], tmp_path: Path) -> None:
    text = 'begin(more={"AGENT": {"console": True}})\nprint("said")\n'
    run(text).communicate(timeout=60)
    until_kept(tmp_path, "said\n")
    run(text, sys.executable, "-m", "rla_agent", "run", "--").communicate(timeout=60)
    until_kept(tmp_path, "said\n", 1)
    assert [path.name for path in consoles(tmp_path)] == ["console.txt"] * 2, "`rla-agent run` keeps it"


@pytest.mark.parametrize("mode", ["RLA_MODE=disabled", "RANK=1"])
def test_nothing_is_kept_of_a_run_that_stores_nothing(
    run: Callable[..., Any], tmp_path: Path, mode: str
) -> None:
    name, _, value = mode.partition("=")
    text = 'begin(console=True)\nprint(os.readlink("/proc/self/fd/1"))\n'
    out, _ = run(text, env={**os.environ, name: value}).communicate(timeout=60)
    assert b"pipe:" in out
    assert consoles(tmp_path) == []


@pytest.mark.usefixtures("agent")
def test_what_was_left_running_does_not_hold_the_run(run: Callable[..., Any], tmp_path: Path) -> None:
    text = """
begin(console=True)
subprocess.Popen(["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo later"], start_new_session=True)
print("last")
"""
    training = run(text)
    assert training.wait(timeout=60) == 0, "the program does not wait for it"
    (tmp_path / "go").touch()
    assert training.communicate(timeout=60)[0].endswith(b"later\n")
    until_kept(tmp_path, "later\n")
