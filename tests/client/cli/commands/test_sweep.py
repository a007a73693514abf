"""`rla sweep` as a user types it."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.sweep_lab import NAME, Lab, make_spec
from support.waiting import TIME_FACTOR, wait_until

from rla_client.cli.sweep_screen import SweepScreen
from rla_client.sweep.journal import Journal


def take_terminal() -> None:
    """Begin a session; its terminal is the one on stdin."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """`rla sweep …` on a terminal of so many columns."""

    def __init__(self, lab: Lab, words: tuple[str, ...], columns: int, lines: int = 24) -> None:
        self.here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        sizes = {"TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[4])}
        environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rla_client.cli.app", "sweep", *words, "-d", str(lab.root)],
            cwd=lab.folder, stdin=there, stdout=there, stderr=there, env={**environment, **sizes},
            preexec_fn=take_terminal,  # noqa: PLW1509 - no threads
        )  # fmt: skip
        lab.started.append(self.process)  # type: ignore[arg-type]
        os.close(there)
        os.set_blocking(self.here, False)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end in a character

    def look(self) -> str:
        try:
            while data := os.read(self.here, 65536):
                self.shown += self._decoder.decode(data)
        except OSError:  # nothing more now, or ever
            pass
        return self.shown

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.look(), 60, lambda: f"{text!r} in {self.shown[-2000:]!r}")

    def type(self, text: str) -> None:
        os.write(self.here, text.encode())

    def end(self) -> int:
        wait_until(lambda: (self.look(), self.process.poll() is not None)[1], 60, lambda: self.shown[-2000:])
        self.look()
        return self.process.wait()


@contextmanager
def terminal(lab: Lab, *words: str, columns: int = 80) -> Iterator[Terminal]:
    made = Terminal(lab, words, columns)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        os.close(made.here)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 80, 300])
def test_the_live_table(lab: Lab, columns: int) -> None:
    lab.write(parameters={"lr": list(range(40)), "a_rather_long_name_of_a_parameter": "ünïcödé 日本 " * 5})
    with terminal(lab, f"{NAME}.yaml", columns=columns) as screen:
        screen.wait_for("running")
        lab.open_gate()
        assert screen.end() == 0
        assert "40 finished" in screen.look()
        assert "Traceback" not in screen.shown
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.shown).replace("\r", "\n").split("\n")
        assert max(len(line) for line in lines) <= columns, max(lines, key=len)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "states", "code"), [("l", "running", 3), ("s", "stopped", 3), ("g", "finished", 0)]
)
def test_ctrl_c_asks(lab: Lab, answer: str, states: str, code: int) -> None:
    lab.write(parameters={"lr": [1, 2]})
    with terminal(lab, f"{NAME}.yaml") as screen:
        lab.wait_for("begin", 2)
        screen.wait_for("running")
        screen.type("\x03")
        screen.wait_for("[l]eave the runs running and exit, [s]top them, or [g]o on")
        assert lab.states() == ["running"] * 2
        screen.type(f"{answer}\n")
        if answer == "g":
            lab.open_gate()
        assert screen.end() == code
    assert lab.states() == [states] * 2


@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once_and_leaves_the_runs(lab: Lab) -> None:
    lab.write(parameters={"lr": [1, 2]})
    with terminal(lab, f"{NAME}.yaml") as screen:
        lab.wait_for("begin", 2)
        screen.wait_for("running")
        screen.type("\x03")
        screen.wait_for("[g]o on")
        screen.type("\x03")
        assert screen.end() != 0
        assert "Traceback" not in screen.shown
    assert lab.states() == ["running"] * 2
    lab.open_gate()
    assert lab.run().endswith("2 finished\n")


@pytest.mark.slow
def test_status(lab: Lab) -> None:
    assert "has no sweep yet\nhint: `rla sweep FILE` starts one" in lab.run("status", code=1)
    lab.shell('echo "oh no: $1"; [ "$1" = 1 ]', metric="score")
    lab.run(code=1)
    told = json.loads(lab.run("status", "--json"))
    assert (told["name"], told["driver"], told["best"]) == (NAME, None, [])
    assert told["counts"] == {
        "running": 0,
        "waiting": 0,
        "finished": 1,
        "failed": 2,
        "stopped": 0,
        "dropped": 0,
    }
    found = {(row["run"], row["state"], row["lr"]) for row in told["runs"]}
    assert found == {(1, "finished", 1), (2, "failed", 2), (3, "failed", 3)}
    shown = lab.run("status", NAME)
    assert shown.startswith("sweep lr: 3 runs: 1 finished, 2 failed\n")
    assert "exit status 1: oh no: 2" in shown
    assert "has no sweep 'lrr'\nhint: did you mean 'lr'?" in lab.run("status", "lrr", code=1)


@pytest.mark.slow
def test_the_newest_sweep_is_the_default(lab: Lab) -> None:
    lab.open_gate()
    for name in ("one", "other"):
        lab.write(name, parameters={"lr": [1]})
        lab.run(f"{name}.yaml")
    assert lab.run("status").startswith("sweep other: ")
    lab.run("resume", "one")
    assert lab.run("status", "one").startswith("sweep one: 1 run: 1 finished\n")


def test_many_rows_are_cut(lab: Lab) -> None:
    lab.write(command="true {args}", parameters={"lr": list(range(30))})
    lab.run()
    assert "… and 10 more" in lab.run("status")
    assert "more" not in lab.run("status", "--all")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("statsu",),
            "there is neither a file nor a command 'statsu'\nhint: did you mean 'status' or 'start'?",
        ),
        (
            ("lrr.yaml",),
            "there is neither a file nor a command 'lrr.yaml'\nhint: did you mean 'lr.yaml'?",
        ),
        (("start", "none.yaml"), "neither a file nor a command 'none.yaml'"),
        (("lr.yaml", "--on", "slrum"), "--on knows no 'slrum'\nhint: did you mean 'slurm'?"),
        (
            ("lr.yaml", "--on-interrupt", "laeve"),
            "--on-interrupt knows no 'laeve'\nhint: did you mean 'leave'?",
        ),
        (("resume", "none"), "has no sweep 'none'"),
    ],
)
def test_wrong_words(lab: Lab, words: tuple[str, ...], told: str) -> None:
    lab.write()
    shown = lab.run(*words, code=2 if " knows no " in told else 1)
    assert told in shown
    assert "Traceback" not in shown
    assert not lab.root.exists(), "nothing was begun"


def test_without_a_terminal_jobs_are_told_as_queued_and_then_as_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, spec = Journal(tmp_path, NAME).hold(), make_spec({"command": "true"}, NAME)
    (run,) = journal.plan([(1, {"lr": 1})])
    journal.tell(run, "started", engine="slurm", handle="")
    journal.tell(run, "placed", handle="7")
    with SweepScreen(as_json=False) as shown:
        shown.look(journal, spec)
        assert capsys.readouterr().out == "run 1 queued  lr=1\n"
        journal.path(run, "job").write_text("job 7 on node1\n")
    assert capsys.readouterr().out == "run 1 running  lr=1\n"
    journal.release()


def test_options_before_the_file(lab: Lab) -> None:
    lab.write()
    lab.open_gate()
    assert lab.run("--on", "local", f"{NAME}.yaml").endswith("3 finished\n")
    assert "No such option" in lab.run("--no-such-option", f"{NAME}.yaml", code=2)


def test_a_file_with_faults_begins_nothing(lab: Lab) -> None:
    lab.write(command="python {lrr}")
    assert "error: the command names {lrr}, which is not a parameter" in lab.run(code=1)
    (lab.folder / "lr.yaml").write_text("command: a\nsed: 3\n")
    assert "line 2: sed unknown key; did you mean 'seeds'?" in lab.run(code=1)
    assert not lab.root.exists()


@pytest.mark.parametrize("command", ["", "start", "status", "stop", "resume"])
def test_help(lab: Lab, command: str) -> None:
    told = lab.run(*([command] if command else []), "--help", told=False, environment={"COLUMNS": "100"})
    assert "sweep" in told
    if not command:
        assert "Examples:" in told
        assert "rla sweep lr.yaml" in told


def test_a_sweep_on_a_disk_that_cannot_be_written(lab: Lab) -> None:
    lab.write()
    lab.root.write_text("a file, no folder")
    told = lab.run(code=1)
    assert "error: " in told
    assert "Traceback" not in told


def test_a_closed_pipe_leaves_the_runs_going(lab: Lab) -> None:
    lab.write()
    driver = lab.start()
    lab.wait_for("begin", 2)
    assert driver.stdout is not None
    driver.stdout.close()
    lab.open_gate()
    driver.wait(60 * TIME_FACTOR)
    driver = lab.start()
    told, _ = driver.communicate(timeout=60 * TIME_FACTOR)
    assert told.endswith("3 finished\n")
