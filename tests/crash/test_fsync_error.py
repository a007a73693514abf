"""fdatasync fails: nothing that hung on it is committed, and the descriptor is never synced again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crash.conftest import Bench
from support.oracle import check_folder

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

PACE = ("--burst", "40", "--pause", "0.02", "--segment-bytes", "65536")


def serve_failing(bench: Bench, run: str, when: str) -> Path:
    """Start an agent that commits often and whose fdatasync of one run's CSV fails; its trace."""
    trace = bench.folder / "trace"
    config = bench.folder / "rla_config.yaml"
    config.write_text("AGENT:\n  commit_interval_s: 0.1\n")
    bench.agent.spawn(
        "strace", "-f", "-qq", "-o", str(trace), "-P", str(bench.folder / run / "progress.csv"),
        "-e", "trace=fdatasync,close", "-e", f"inject=fdatasync:error=EIO:when={when}",
        config=config,
    )  # fmt: skip
    return trace


def errors_in(trace: Path) -> int:
    """How often a sync has failed so far."""
    return trace.read_text().count("EIO") if trace.exists() else 0


def assert_never_synced_again(trace: str) -> int:
    """Each descriptor whose fdatasync failed is closed before that number is synced again."""
    failed: set[str] = set()
    failures = 0
    for line in trace.splitlines():
        match = re.search(r"(fdatasync|close)\((\d+)", line)
        if match is None:
            continue
        call, descriptor = match.groups()
        if call == "close":
            failed.discard(descriptor)
            continue
        assert descriptor not in failed, f"synced again: {line}"
        if "EIO" in line:
            failed.add(descriptor)
            failures += 1
    return failures


@pytest.mark.slow
@pytest.mark.parametrize("when", ["1", "2", "5..7"])
def test_after_an_error_all_rows_are_there(when: str, bench: Bench) -> None:
    trace = serve_failing(bench, "run", when)
    one = bench.train("run", *PACE)
    bench.wait_until(lambda: errors_in(trace) > 0, 30)
    bench.train_on(one, 500)
    bench.end(one)
    bench.agent.kill_traced()
    check_folder(one)
    assert assert_never_synced_again(trace.read_text()) >= 1


@pytest.mark.slow
def test_nothing_is_committed_while_syncs_fail(bench: Bench) -> None:
    trace = serve_failing(bench, "run", "2+")
    one = bench.train("run", *PACE)
    bench.wait_until(lambda: errors_in(trace) > 5, 30)
    one.stop()
    bench.agent.kill_traced()
    bench.agent.spawn()
    bench.agent.drain(bench.wait_until)
    check_folder(one)


@pytest.mark.further
@pytest.mark.slow
def test_one_error_among_many_files(bench: Bench) -> None:
    """So many that they are synced in threads."""
    trace = serve_failing(bench, "run0", "3")
    all_of_them = [bench.train(f"run{number}", *PACE) for number in range(5)]
    bench.wait_until(lambda: errors_in(trace) > 0, 30)
    for one in all_of_them:
        bench.train_on(one, 200)
    for one in all_of_them:
        one.stop()
    bench.agent.drain(bench.wait_until)
    bench.agent.kill_traced()
    for one in all_of_them:
        check_folder(one)


def test_a_name_is_durable_before_the_file_counts_as_named(tmp_path: Path) -> None:
    """After each rename of a file that is to last, its folder is synced."""
    trace, folder = tmp_path / "trace", tmp_path / "folder"
    folder.mkdir()
    code = (
        "import sys; from rla_client.contract.filesystem.atomic_write import write_atomic; "
        "write_atomic(sys.argv[1], b'content')"
    )
    command = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-o",
        str(trace),
        "-e",
        "trace=rename,renameat,renameat2,fsync,fdatasync",
    ]
    done = subprocess.run([*command, sys.executable, "-c", code, str(folder / "name")], check=False)
    assert done.returncode == 0
    calls = [line for line in trace.read_text().splitlines() if str(folder) in line]
    (renamed,) = [number for number, line in enumerate(calls) if "rename" in line]
    assert "sync(" in calls[renamed - 1], "the content was not synced before it took its name"
    assert any("sync(" in line and f"<{folder}>" in line for line in calls[renamed + 1 :]), calls
