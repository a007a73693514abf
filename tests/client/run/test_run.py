"""Runs of real training processes: how they end, what they print, what their workers write."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_port
from support.spooled import stop_autostart, values

from rla_client import logger
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.opening import Opening
from rla_client.run.failure import TRACEBACK_BYTES
from rla_client.run.opening_frame import make_opening
from rla_client.run.run import REASON_CHARS

HEAD = """
import os, signal, sys, time
from rla_client import exp_manager, logger, time_step_holder

def begin(**options):
    exp_manager.configure("t", rla_config={"LOG_USED": LOG_USED},
                          data_root=sys.argv[1], code_root=sys.argv[2])
    exp_manager.set_hyper_param(seed=1)
    exp_manager.log_files_gen(**options)

def rows(count, key="a"):
    for number in range(count):
        time_step_holder.set_time(number)
        logger.record_tabular(key, number)
        logger.dump_tabular()

"""


class Trainer:
    """Starts scripts against the test's agent."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.code = folder / "code"
        self.code.mkdir()

    def start(
        self, script: str, sinks: str = "['csv', 'log']", *, launcher: tuple[str, ...] = (), **variables: str
    ) -> subprocess.Popen[str]:
        path = self.code / f"train_{len(list(self.code.iterdir()))}.py"
        path.write_text(HEAD.replace("LOG_USED}", f"{sinks}}}") + script)
        return subprocess.Popen(
            [sys.executable, *launcher, str(path), str(self.data), str(self.code)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables},
        )  # fmt: skip

    def run(self, script: str, *arguments: Any, **options: Any) -> tuple[int, str, str]:
        process = self.start(script, *arguments, **options)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err

    def folders(self) -> list[Path]:
        return sorted(path.parent for path in self.data.glob("log/t/*/*/*/*/run.json"))

    def state(self) -> dict[str, Any] | None:
        """run.json of the only run, once it has ended."""
        for folder in self.folders():
            found: dict[str, Any] = json.loads((folder / "run.json").read_text())
            if found["state"] != "running":
                return found
        return None


@pytest.fixture(name="trainer")
def trainer_fixture(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("ending", "state", "reason", "code"),
    [
        ("", "finished", "", 0),
        ("sys.exit(0)", "finished", "", 0),
        ("raise ValueError('diverged')", "failed", "ValueError: diverged", 1),
        (
            "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})",
            "failed",
            "Odd: <Odd: cannot be shown>",
            1,
        ),
        (r"raise ValueError('a name: \udcff')", "failed", r"ValueError: a name: \udcff", 1),
        ("raise KeyboardInterrupt", "interrupted", "KeyboardInterrupt", None),
        ("exp_manager.close('failed', 'nan loss')", "failed", "nan loss", 0),
        ("os._exit(5)", "killed", None, 5),
        ("os.kill(os.getpid(), signal.SIGTERM)", "killed", None, -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", None, -signal.SIGKILL),
    ],
)
def test_how_a_run_ends(
    trainer: Trainer,
    wait_until: Callable[..., Any],
    ending: str,
    state: str,
    reason: str | None,
    code: int | None,
) -> None:
    returned, _, _ = trainer.run(f"begin()\nrows(20)\n{ending}\n")
    if code is not None:
        assert returned == code
    found = wait_until(trainer.state)
    assert found["state"] == state
    assert found["rows"] == 20
    assert found["time_step"] == 19
    if reason is not None:
        assert found["reason"] == reason
    (folder,) = trainer.folders()
    assert [row["a"] for row in read_rows(folder / "progress.csv")] == [str(n) for n in range(20)]
    assert {"warn.txt", "backup.txt", "log.txt", "parameter.yaml"} <= set(os.listdir(folder))


@pytest.mark.usefixtures("agent")
def test_the_log_keeps_the_end_of_the_traceback(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    script = """
begin()
def deeper(n):
    left = 10 - n
    if n:
        return even(n - 1) if n % 2 else odd(n - 1)
    raise ValueError("simulated " + "x" * 10)
def even(n): return deeper(n)
def odd(n): return deeper(n)
deeper(80)
"""
    returned, out, err = trainer.run(script)
    assert returned == 1
    assert wait_until(trainer.state)["reason"].startswith("ValueError: simulated")
    (folder,) = trainer.folders()
    for name in ("log.txt", "warn.txt"):
        text = (folder / name).read_text()
        assert text.endswith("ValueError: simulated xxxxxxxxxx\n")
        assert text.count("return deeper(n)") > 10
        assert "in <module>" not in text, "the last 100 lines of many"
    assert "in deeper" not in out
    assert "in <module>" in err


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_all_open_runs_are_closed_and_an_error_that_was_caught_is_told(
    trainer: Trainer, wait_until: Callable[..., Any]
) -> None:
    script = """
begin()
logger.configure(sys.argv[1] + "/plain", ["csv", "log"])
try:
    with logger.scoped_configure(sys.argv[1] + "/inner", ["log"]):
        raise KeyError("caught")
except KeyError:
    pass
raise ValueError("x" * 100000)
"""
    trainer.run(script)
    assert wait_until(trainer.state)["state"] == "failed"
    wait_until(lambda: _state(trainer.data / "plain") == "failed")
    wait_until(lambda: _state(trainer.data / "inner") == "failed")
    assert "KeyError: 'caught'\n" in (trainer.data / "inner" / "log.txt").read_text()
    assert len((trainer.data / "plain" / "warn.txt").read_text()) == TRACEBACK_BYTES + 1


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_whatever_is_given_as_a_reason(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    returned, _, err = trainer.run("begin()\nexp_manager.close('failed', ValueError('x' * 20_000_000))\n")
    assert returned == 0, err
    found = wait_until(trainer.state)
    assert (found["state"], found["reason"]) == ("failed", "x" * REASON_CHARS)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_a_block_that_fails_oddly(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    script = """
class Odd(Exception):
    def __str__(self): return 1 / 0
try:
    with logger.scoped_configure(sys.argv[1], ["log"]):
        raise Odd
except Odd:
    pass
"""
    returned, _, err = trainer.run(script)
    assert returned == 0, err
    wait_until(lambda: _state(trainer.data) == "failed")


def _state(folder: Path) -> str:
    try:
        return str(json.loads((folder / "run.json").read_text())["state"])
    except FileNotFoundError:
        return ""


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_ctrl_c_in_the_loop(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    process = trainer.start("begin()\nrows(5)\nprint('looping', flush=True)\ntime.sleep(60)\n")
    assert process.stdout is not None
    for line in process.stdout:
        if "looping" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert wait_until(trainer.state)["reason"].startswith("KeyboardInterrupt")


CLICK_LIKE = """
try:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        raise RuntimeError("Aborted!") from error
except RuntimeError:
    sys.exit(1)
"""
TYPER = """
import typer
def main():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
app = typer.Typer(add_completion=False)
app.command()(main)
app([])
"""
WENT_ON = """
try:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(1)
except SystemExit:
    rows(5)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("ending", "state", "reason", "code"),
    [
        (CLICK_LIKE, "interrupted", "KeyboardInterrupt", 1),
        (TYPER, "interrupted", "KeyboardInterrupt", 130),
        ("signal.signal(2, lambda *_: sys.exit(130))\nos.kill(os.getpid(), 2)", "interrupted", None, 130),
        (WENT_ON, "finished", "", 0),
        ("sys.exit(1)", "finished", "", 1),
        ("import threading\nthreading.Thread(target=sys.exit, args=(130,)).start()", "finished", "", 0),
    ],
)
def test_an_exit_because_of_ctrl_c(
    trainer: Trainer, wait_until: Callable[..., Any], ending: str, state: str, reason: str | None, code: int
) -> None:
    assert trainer.run(f"begin()\nrows(5)\n{ending}\n")[0] == code
    found = wait_until(trainer.state)
    assert found["state"] == state
    assert reason is None or found["reason"] == reason


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_nothing_is_printed_that_was_not_asked_for(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    code, out, err = trainer.run("begin()\nrows(5)\nlogger.flush(60)\n")
    assert code == 0
    assert err == ""
    (line,) = out.splitlines()
    assert line.startswith("rla: this run is stored in ")
    wait_until(trainer.state)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_workers_write_streams_of_their_own(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    script = """
import multiprocessing
def work(number):
    rows(10, "worker")
    logger.warn("from a worker")

if __name__ == "__main__":
    begin()
    rows(10, "main")
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=work, args=(1,))
        child.start()
        child.join(60)
        assert child.exitcode == 0, method
    rows(10, "main")
"""
    code, _, err = trainer.run(script)
    assert code == 0, err
    found = wait_until(trainer.state)
    assert found["state"] == "finished"
    (folder,) = trainer.folders()
    wait_until(lambda: len(list(folder.glob("progress.*.csv"))) == 2)
    assert [row["main"] for row in read_rows(folder / "progress.csv")] == [str(n % 10) for n in range(20)]
    for path in folder.glob("progress.*.csv"):
        wait_until(
            lambda path=path: [row["worker"] for row in read_rows(path)] == [str(n) for n in range(10)]
        )
    assert len(list(folder.glob("warn.*.txt"))) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_fork_while_a_value_is_pending_doubles_nothing(
    trainer: Trainer, wait_until: Callable[..., Any]
) -> None:
    script = """
begin()
rows(3)
logger.record_tabular("pending", 1)
if os.fork() == 0:
    logger.dump_tabular()
    os._exit(0)
os.wait()
logger.dump_tabular()
"""
    code, _, err = trainer.run(script)
    assert code == 0, err
    assert wait_until(trainer.state)["state"] == "finished"
    (folder,) = trainer.folders()
    pending = [
        row["pending"]
        for path in folder.glob("progress*.csv")
        for row in read_rows(path)
        if row.get("pending")
    ]
    assert pending == ["1"]


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_four_runs_started_at_once(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    processes = [trainer.start(f"begin()\nrows(50, 'k{number}')\n") for number in range(4)]
    for process in processes:
        _, err = process.communicate(timeout=90)
        assert process.returncode == 0, err

    def ended() -> bool:
        states = [json.loads((folder / "run.json").read_text())["state"] for folder in trainer.folders()]
        return states == ["finished"] * 4

    wait_until(ended)
    keys = set()
    for folder in trainer.folders():
        found = read_rows(folder / "progress.csv")
        assert len(found) == 50
        keys |= set(found[0]) - {"time-step", "timestamp"}
    assert keys == {"k0", "k1", "k2", "k3"}


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_two_experiments_in_one_process(trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    code, _, err = trainer.run("begin()\nrows(5)\nbegin()\nrows(3)\n")
    assert code == 0, err

    def both() -> bool:
        return [json.loads((f / "run.json").read_text())["state"] for f in trainer.folders()] == [
            "finished"
        ] * 2

    wait_until(both)
    first, second = (read_rows(folder / "progress.csv") for folder in trainer.folders())
    assert [row["time-step"] for row in first] == ["0", "1", "2", "3", "4"]
    assert [row["time-step"] for row in second] == ["0", "1", "2"]


@pytest.mark.slow
def test_without_an_agent_the_rows_wait(
    places: Places, trainer: Trainer, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    places.stopped_marker.touch()
    code, out, err = trainer.run("begin()\nrows(30)\n")
    assert code == 0
    assert len(out.splitlines()) == 1
    assert "rla-agent start" in err
    new_agent().start()
    assert wait_until(trainer.state)["state"] == "finished"
    assert len(read_rows(trainer.folders()[0] / "progress.csv")) == 30


RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("all_ranks", [pytest.param(False, marks=pytest.mark.further), True])
def test_two_ranks_of_torchrun(trainer: Trainer, wait_until: Callable[..., Any], all_ranks: bool) -> None:
    pytest.importorskip("torch")
    script = f"begin(all_ranks={all_ranks})\nrows(10, 'r' + os.environ['RANK'])\ntime.sleep(0.5)\nrows(1, 'last')\n"  # noqa: E501
    for repeat in (1, 2):  # the second job must not join the first one's run
        code, out, err = trainer.run(
            script, "['stdout', 'csv']", launcher=RANKS, MASTER_PORT=str(free_port()), OMP_NUM_THREADS="1"
        )
        assert code == 0, err
        assert out.count("rla: this run is stored in") == 1
        assert "| r0 " in out
        assert "| r1 " not in out, "only rank 0 prints"
        wait_until(lambda repeat=repeat: len(trainer.folders()) == repeat)
    wait_until(
        lambda: all(
            json.loads((f / "run.json").read_text())["state"] == "finished" for f in trainer.folders()
        )
    )
    for folder in trainer.folders():
        wait_until(lambda folder=folder: len(read_rows(folder / "progress.csv")) == 11)
        others = list(folder.glob("progress.*.csv"))
        if all_ranks:
            wait_until(lambda folder=folder: (folder / "progress.rank1.csv").exists())
            wait_until(lambda folder=folder: len(read_rows(folder / "progress.rank1.csv")) == 11)
        else:
            assert others == []


FORGOTTEN = """
begin()
{body}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "for n in range(8): logger.record_tabular(f'k{n}', n)",
            "8 values were recorded but never written; call logger.dump_tabular() (k0, k1, k2, k3, k4, ...)",
        ),
        (
            "rows(1); logger.record_tabular('late', 1); exp_manager.close()",
            "1 value was recorded after the last row and not written; call logger.dump_tabular() (late)",
        ),
        (
            "for n in range(3): logger.record_tabular('k', n); logger.dump_tabular()",
            "two rows have time-step 0, because nobody sets it",
        ),
    ],
)
def test_what_was_forgotten_is_said_once(
    trainer: Trainer, wait_until: Callable[..., Any], body: str, said: str
) -> None:
    code, _, err = trainer.run(FORGOTTEN.format(body=body))
    assert code == 0, err
    assert err.count(said) == 1, err
    wait_until(trainer.state, what="the end of the run")
    assert (trainer.folders()[0] / "warn.txt").read_text().count(said) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    "body",
    [
        "rows(3)",
        "logger.record_tabular('only', 1); logger.dump_tabular()",
        "time_step_holder.set_time(0)\nfor n in (1, 2): logger.record_tabular('k', n); logger.dump_tabular()",
        "rows(2)\nwith logger.ProfileKV('env'): pass",
        "import rla_client\nfor n in range(3): rla_client.log({'k': n})",
    ],
)
def test_nothing_is_said_where_nothing_was_forgotten(trainer: Trainer, body: str) -> None:
    code, _, err = trainer.run(FORGOTTEN.format(body=body))
    assert code == 0
    assert not err


def test_rows_without_a_run_are_said_to_be_lost_at_the_second(trainer: Trainer) -> None:
    code, out, err = trainer.run("rows(1)")
    assert (code, err) == (0, ""), "one row that is only printed is harmless"
    code, out, err = trainer.run("rows(3)")
    assert code == 0
    assert out.count("time-step") == 3
    assert err.count("no run is open, so rows are printed and not saved: call rla_client.init(") == 1


def test_a_run_that_begins_before_1970_is_one_that_the_agent_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: -(10**18))
    monkeypatch.setattr(time, "time", lambda: -1e9)
    opening = make_opening(root=tmp_path, folders={"log": "."}, sinks=("csv",), names={}, item={})
    assert Opening.from_fields(opening.to_fields()).opened == 0


def test_a_folder_whose_path_is_not_utf8_is_refused_in_words(places: Places, tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff")
    stop_autostart(places)
    with pytest.raises(ArgumentError, match=r"r\\udcff is not UTF-8"):
        logger.configure(folder, ["csv"])


def test_an_environment_that_is_not_utf8_is_no_hindrance(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_autostart(places)
    monkeypatch.setenv("RLA_LAUNCH", os.fsdecode(b"a\xff"))
    logger.configure(tmp_path / "run", ["csv"])
    logger.record_tabular("a", 1)
    logger.dump_tabular()
    logger.reset()
    assert values(places) == [{"a": 1}]
