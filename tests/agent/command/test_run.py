"""`rla-agent run`: the command, its signals, its output, its runs, and the agent around it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hung_folder import hung, needs_hung_folder
from support.loop_disk import LoopDisk, needs_loop_disk

from rla_agent.command.run import with_parts
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places

TRAINING = """
import os, sys, time
from rla_client import exp_manager, logger
root, rows, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
config = {"LOG_USED": ["csv"], "AGENT": {"exit_wait_s": 0}}
exp_manager.configure("table", rla_config=config, data_root=root, code_root=root)
exp_manager.log_files_gen()
for number in range(rows):
    logger.record_tabular("number", number)
    logger.dump_tabular()
print("trained", flush=True)
print("to stderr", file=sys.stderr, flush=True)
if end == "wait":
    time.sleep(3600)
if end == "kill":
    os.kill(os.getpid(), 9)
sys.exit(int(end))
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rla_agent", "run", *arguments]


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=60, check=False, **more
    )


def item(root: Path) -> Path:
    (log,) = root.glob("log/table/*/*/*/*")
    return log


def training(root: Path, rows: int, end: str) -> list[str]:
    root.mkdir(exist_ok=True)
    return [sys.executable, "-c", TRAINING, str(root), str(rows), end]


@pytest.mark.slow
def test_an_agent_comes_and_goes_with_the_command(places: Places, tmp_path: Path) -> None:
    root = tmp_path / "data"
    done = run("--", *training(root, 100, "3"))
    assert done.returncode == 3, done.stderr
    assert "trained\n" in done.stdout
    assert "to stderr\n" in done.stderr
    assert not agent_alive(places)
    assert list(places.spool.iterdir()) == []
    log = item(root)
    assert (log / "progress.csv").read_text().count("\n") == 101
    record = json.loads((log / "run.json").read_text())
    assert (record["exit_code"], record["signal"], record["rows"]) == (3, None, 100)
    assert (record["state"], record["reason"]) == ("failed", "exit code 3")
    console = (log / "console.txt").read_text()
    assert "trained" in console
    assert "to stderr" in console  # print writes the line's end apart, so another line may come between


@pytest.mark.slow
def test_an_agent_that_the_command_starts_ends_with_it(
    places: Places, wait_until: Callable[..., Any]
) -> None:
    """Another job's agent goes, and a client is quicker than `rla-agent run` to start the next."""
    code = (
        "from rla_agent.service.stop_agent import stop_agent\n"
        "from rla_client.contract.agent.agent_start import start_agent\n"
        "from rla_client.contract.agent.places import find_places\n"
        "places = find_places()\nstop_agent(places)\nassert start_agent(places)\n"
    )
    with subprocess.Popen([sys.executable, "-m", "rla_agent", "start"]) as other:  # not started by the job
        wait_until(lambda: agent_alive(places))
        done = run("--", sys.executable, "-c", code)
        assert done.returncode == 0, done.stderr
        other.wait()
    wait_until(lambda: not any_agent(places), 30, what="the end of all agents")


def any_agent(places: Places) -> list[int]:
    """Agent processes of these places, also one that has no lock yet."""
    wanted = f"RLA_STATE_DIR={places.state}".encode()
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if (
                wanted in Path("/proc", process, "environ").read_bytes().split(b"\0")
                and b"rla_agent.daemon" in Path("/proc", process, "cmdline").read_bytes()
            ):
                found.append(int(process))
    return found


@pytest.mark.slow
def test_two_jobs_that_end_together_leave_no_agent_and_lose_no_row(
    places: Places, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for _ in range(3):
        jobs = [
            subprocess.Popen(command("--", *training(root, 50, "0")), stderr=subprocess.PIPE)
            for root in roots
        ]
        assert [job.communicate(timeout=120)[0] or job.returncode for job in jobs] == [0, 0]
    wait_until(lambda: not any_agent(places), 30, what="the end of all agents")
    assert list(places.spool.iterdir()) == []
    rows = [
        log.read_text().count("\n") for root in roots for log in root.glob("log/table/*/*/*/*/progress.csv")
    ]
    assert rows == [51] * 6


@pytest.mark.slow
def test_a_killed_command(places: Places, tmp_path: Path) -> None:
    root = tmp_path / "data"
    done = run("--no-console", "--", *training(root, 10, "kill"))
    assert done.returncode == 128 + 9
    record = json.loads((item(root) / "run.json").read_text())
    assert (record["state"], record["reason"]) == ("killed", "killed by SIGKILL")
    assert (record["exit_code"], record["signal"]) == (None, 9)
    assert not (item(root) / "console.txt").exists()
    del places


@pytest.mark.slow
def test_beside_a_serving_agent(agent: Any, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    root = tmp_path / "data"
    process = subprocess.Popen(
        command("--", *training(root, 10, "wait")), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: [r for r in agent.status()["runs"] if r["rows"] == 10], 20)
    (shown,) = agent.status()["runs"]
    assert len(shown["launch"]) == 16
    log = Path(shown["log_folder"])
    wait_until(lambda: (log / "console.txt").exists() and "trained" in (log / "console.txt").read_text())
    process.terminate()  # goes on to the command
    assert process.wait(60) == 128 + signal.SIGTERM
    assert json.loads((log / "run.json").read_text())["signal"] == signal.SIGTERM
    assert agent.alive, "it was not started by this run"
    (shown,) = agent.status()["runs"]
    assert (shown["state"], shown["signal"]) == ("killed", signal.SIGTERM), "agent.db knows it too"


CHATTY = """
import os, sys
for _ in range(300):
    os.write(1, b"x" * 99_999 + b"\\n")
os.write(1, b"the last word\\n")
open(sys.argv[1], "w").close()
sys.stdin.read()
sys.exit(5)
"""


@pytest.mark.slow
@needs_hung_folder
def test_a_data_root_that_hangs_does_not_hold_up_the_command(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    root, printed = tmp_path / "data", tmp_path / "printed"
    words = " ".join(f"'{word}'" for word in training(root, 5, "0"))
    then = f"read go; exec '{sys.executable}' -c '{CHATTY}' '{printed}'"
    process = subprocess.Popen(
        command("--drain", "1", "--", "sh", "-c", f"{words}; {then}"),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    wait_until(lambda: list(root.glob("log/table/*/*/*/*/console.txt")), 30)
    console = item(root) / "console.txt"
    wait_until(lambda: [run for run in agent.status()["runs"] if run["state"] == "finished"], 20)
    with hung(root):
        process.stdin.write("go\n")
        process.stdin.flush()
        wait_until(printed.exists, 30)
        process.stdin.close()
        assert process.wait(60) == 5
        assert process.stderr is not None
        assert "a data root does not answer" in process.stderr.read()
        process.stderr.close()
    wait_until(lambda: console.read_bytes().endswith(b"the last word\n"), 30)
    wait_until(lambda: json.loads((item(root) / "run.json").read_text())["exit_code"] == 5, 30)


FROZEN = """
import sys, time
from pathlib import Path
from rla_client import exp_manager, logger
root, here = sys.argv[1], Path(sys.argv[2])
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"], "AGENT": {"exit_wait_s": 0}}, data_root=root)
exp_manager.log_files_gen()
here.with_suffix(".ready").touch()
while not here.with_name("go").exists():
    time.sleep(0.01)
for number in range(2000):
    logger.record_tabular("number", number)
    logger.dump_tabular()
here.with_suffix(".trained").touch()
"""


@pytest.mark.further
@pytest.mark.slow
@pytest.mark.root
@needs_loop_disk
def test_a_data_root_that_is_frozen_and_thawed(
    places: Places, tmp_path: Path, loop_disk: Callable[..., LoopDisk], wait_until: Callable[..., Any]
) -> None:
    """Training goes on, what lies on another disk is served, and all rows arrive after the thaw."""
    disk = loop_disk("frozen")
    roots = {"frozen": disk.folder / "data", "other": tmp_path / "other-data"}
    for root in roots.values():
        root.mkdir()
    python = shlex.quote(sys.executable)
    each = [f"{python} -c {shlex.quote(FROZEN)} {root} {tmp_path / name} &" for name, root in roots.items()]
    process = subprocess.Popen(
        command("--drain", "120", "--", "sh", "-c", " ".join([*each, "wait"])), stdout=subprocess.DEVNULL
    )

    def rows(name: str) -> int:
        return (item(roots[name]) / "progress.csv").read_text().count("\n") - 1

    try:
        wait_until(lambda: all((tmp_path / f"{name}.ready").exists() for name in roots), 60)
        disk.freeze(at_most_s=120)
        (tmp_path / "go").touch()
        wait_until(lambda: all((tmp_path / f"{name}.trained").exists() for name in roots), 60)
        wait_until(lambda: rows("other") == 2000, 60, what="rows on the other disk")
        assert process.poll() is None, "it waits for what can still be taken in"
    finally:
        disk.thaw()
        code = process.wait(120)
    assert (code, rows("frozen"), list(places.spool.iterdir())) == (0, 2000, [])


@pytest.mark.slow
def test_slurm_ends_the_whole_process_group(places: Places, tmp_path: Path) -> None:
    root = tmp_path / "data"
    process = subprocess.Popen(
        command("--", *training(root, 50, "wait")),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert "trained\n" in iter(process.stdout.readline, "")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (item(root) / "progress.csv").read_text().count("\n") == 51
    assert json.loads((item(root) / "run.json").read_text())["state"] == "killed"
    assert not agent_alive(places)
    process.stdout.close()


@pytest.mark.slow
def test_several_runs_share_one_console(places: Places, tmp_path: Path) -> None:
    root = tmp_path / "data"
    one = " ".join(f"'{word}'" for word in training(root, 5, "0"))
    done = run("--", "sh", "-c", f"{one} && {one} && exit 5", env={**os.environ, "ONE": "1"})
    assert done.returncode == 5, done.stderr
    logs = list(root.glob("log/table/*/*/*/*"))
    assert len(logs) == 2
    assert {(log / "console.txt").read_text().count("trained") for log in logs} == {2}
    assert {json.loads((log / "run.json").read_text())["exit_code"] for log in logs} == {5}
    del places


@pytest.mark.slow
def test_commands_that_do_not_start(places: Places, tmp_path: Path) -> None:
    missing = run("--", "no-such-command")
    assert (missing.returncode, "not found" in missing.stderr) == (127, True)
    (tmp_path / "file").write_text("")
    refused = run("--", str(tmp_path / "file"))
    assert (refused.returncode, "cannot be executed" in refused.stderr) == (126, True)
    assert not agent_alive(places)
    assert run().returncode == 2


@pytest.mark.slow
def test_input_options_and_a_closed_reader(agent: Any) -> None:
    done = run("--", "cat", "--", "-", input="through\n")
    assert done.stdout == "through\n"
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(command('--', 'seq', '100000'))} | head -1; echo"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "1\n\n"
    del agent


@pytest.mark.slow
def test_in_a_terminal_the_command_has_one_too(agent: Any) -> None:
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        command("--", "sh", "-c", "test -t 1 && test -t 2 && echo is a terminal"),
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    text = b""
    end = time.monotonic() + 60
    while b"terminal" not in text and time.monotonic() < end:
        text += os.read(outer, 1000)
    assert b"is a terminal" in text
    assert process.wait(60) == 0
    os.close(outer)
    del agent


@pytest.mark.slow
def test_what_is_not_durable_in_time_stays_in_the_spool(agent: Any, tmp_path: Path) -> None:
    root = tmp_path / "data"
    words = " ".join(f"'{word}'" for word in training(root, 5, "0"))
    done = run("--drain", "1", "--", "sh", "-c", f"kill -STOP {agent.pid}; {words}")
    assert done.returncode == 0
    assert "1 streams are not durable within the limit" in done.stderr
    assert len(list(agent.places.spool.iterdir())) == 1
    agent.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--capture", "--", "python", "x"], ["--capture=all", "--", "python", "x"]),
        (["--drain", "3", "--capture", "python", "x"], ["--drain", "3", "--capture=all", "python", "x"]),
        (["--capture=-wandb", "--", "x"], ["--capture=-wandb", "--", "x"]),
        (["--", "x", "--capture"], ["--", "x", "--capture"]),
        (["x", "--capture"], ["x", "--capture"]),
        ([], []),
    ],
)
def test_the_commands_own_words_stay(words: list[str], found: list[str]) -> None:
    assert with_parts(words) == found
