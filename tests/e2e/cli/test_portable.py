"""`rla`, queries and plots on a machine that is no Linux: without its calls, constants and /proc.

There is no macOS here; what Python has on Linux alone is taken away before our modules are imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HIDE = """
import fcntl, os, select, signal, socket, sys
import matplotlib.figure, matplotlib.backends.backend_agg, numpy, pandas, platformdirs, rich, typer, yaml

LINUX_ONLY = {
    os: "memfd_create pidfd_open posix_fadvise posix_fallocate copy_file_range eventfd sched_getaffinity "
        "sched_setaffinity splice setns unshare getrandom O_TMPFILE O_PATH O_DIRECT O_NOATIME".split(),
    select: ["epoll"],
    signal: "pidfd_send_signal SIGRTMIN SIGPWR sigtimedwait sigwaitinfo".split(),
    socket: "SO_PEERCRED AF_NETLINK AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK".split(),
    fcntl: [name for name in dir(fcntl) if name.startswith(("F_OFD", "F_SEAL", "F_ADD_SEALS", "F_NOTIFY"))],
}
for module, names in LINUX_ONLY.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        if os.fsdecode(arguments[0]).startswith(("/proc", "/sys/", "/etc/machine-id", "/dev/shm")):
            raise FileNotFoundError(2, "there is none on macOS", arguments[0])

sys.addaudithook(watch)
sys.platform = "darwin"
"""
LOOK = """
from rla_client.cli.app import make_app

app = make_app()
root, plot, foreign = sys.argv[1:]
for line in [
    "ls", "ls --json", "show", "tail", "diff 09-30-00 09-30-01", "compare", "plot return -g lr -o " + plot,
    f"export {plot}.csv", "tag @last x", "note @last y", "archive @last -y", "migrate other @last -t task -y",
    "import csv " + foreign, "rm -t other -y", "trash", "trash empty -y", "du", "fsck",
]:
    app(line.split(), standalone_mode=False)
from rla_client import plot_func, experiment_data_query
from rla_client.plot import statistics
plot_func(root, "task", ["*"], ["lr"], ["return"])
assert len(experiment_data_query(root, "task", "*", "log")) == 2
assert not {"rla_agent", "watchfiles", "paramiko", "zmq"} & set(sys.modules), sorted(sys.modules)
"""
RECORD = """
import rla_client
rla_client.init("table", config={"lr": 0.1}, data_root=sys.argv[1])
for step in range(3):
    rla_client.log({"loss": 1.0}, step=step)
assert not os.listdir(sys.argv[1])
from rla_agent.command.app import main
for command in (["start", "--detach"], ["drain"], ["run", "--", "true"], ["doctor"]):
    try:
        main(command)
    except SystemExit as ended:
        print("ended with", ended.code)
"""


def test_a_program_runs_without_a_record_where_there_is_no_linux(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", HIDE + RECORD, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3]), "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert "rla-agent records on Linux, and this is darwin: this run is not stored" in told
    assert (
        done.stderr.count("error: rla-agent records on Linux, and this is darwin; see: rla-agent doctor") == 3
    )
    assert done.stdout.count("ended with 3") == 3
    assert "fault: rla-agent records on Linux, and this is darwin" in done.stdout


@pytest.mark.slow
def test_everything_that_reads_a_database_runs_without_linux(
    root: Path, make_run: Callable[..., str], tmp_path: Path
) -> None:
    for number in range(2):
        make_run(number=number, state="running" if number == 0 else "finished", updated=1e9)
    (tmp_path / "foreign.csv").write_text("step,loss\n1,2\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "HOME": str(tmp_path),
        "RLA_DATA_ROOT": str(root),
    }
    environment.pop("RLA_STATE_DIR")
    arguments = [str(root), str(tmp_path / "plot.png"), str(tmp_path / "foreign.csv")]
    done = subprocess.run(
        [sys.executable, "-c", HIDE + LOOK, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:2500] + done.stderr[-300:]
    assert (tmp_path / "plot.png").stat().st_size > 1000
    assert "unknown" in done.stdout


@pytest.mark.parametrize("words", [["ls"], ["compare"], ["show", "@last"]])
def test_names_that_this_pythons_file_names_cannot_hold(
    root: Path, make_run: Callable[..., str], words: list[str]
) -> None:
    make_run(table="t\u00e4ble")
    command = [sys.executable, "-c", "from rla_client.cli.app import main; main()", *words]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "RLA_DATA_ROOT": str(root),
    }
    told = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert told.returncode == 0, told.stderr
    ascii_only = {**environment, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    told = subprocess.run(command, env=ascii_only, capture_output=True, check=False)
    assert told.returncode == 1
    assert told.stderr == b"error: this Python reads file names as ascii\nhint: start it with PYTHONUTF8=1\n"
