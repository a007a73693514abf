"""fdatasync fails: nothing that hung on it is committed, and the descriptor is never synced again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from crash.oracle import Trainer, check_folder

from rla_agent.lock import read_holder
from rla_client.places import Places

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

PACE = ("--burst", "40", "--pause", "0.02", "--segment-bytes", "65536")


def kill_traced(agent: BareAgent, places: Places, wait_until: Callable[..., object]) -> None:
    import os

    process = agent.process
    assert process is not None
    os.kill(int(read_holder(places)["pid"]), 9)
    wait_until(lambda: process.poll() is not None)


def failing(trace: Path, path: Path, when: str) -> tuple[str, ...]:
    """The command that lets fdatasync of one file fail."""
    return (
        "strace", "-f", "-qq", "-o", str(trace), "-P", str(path), "-e", "trace=fdatasync,close",
        "-e", f"inject=fdatasync:error=EIO:when={when}",
    )  # fmt: skip


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


@pytest.mark.parametrize("when", ["1", "2", "5..7"])
def test_after_an_error_all_rows_are_there(
    when: str,
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace"
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT:\n  commit_interval_s: 0.1\n")
    bare_agent.spawn(*failing(trace, tmp_path / "run" / "progress.csv", when), config=config)
    one = trainer("run", *PACE)
    wait_until(lambda: "EIO" in trace.read_text() if trace.exists() else False, 30)
    target = one.told + 500
    wait_until(lambda: one.told > target)
    one.stop()
    bare_agent.drain(wait_until)
    kill_traced(bare_agent, places, wait_until)
    check_folder(one)
    assert assert_never_synced_again(trace.read_text()) >= 1


def test_nothing_is_committed_while_syncs_fail(
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace"
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT:\n  commit_interval_s: 0.1\n")
    bare_agent.spawn(*failing(trace, tmp_path / "run" / "progress.csv", "2+"), config=config)
    one = trainer("run", *PACE)
    wait_until(lambda: trace.exists() and trace.read_text().count("EIO") > 5, 30)
    one.stop()
    kill_traced(bare_agent, places, wait_until)
    bare_agent.spawn()
    bare_agent.drain(wait_until)
    check_folder(one)


def test_a_name_is_durable_before_the_file_counts_as_named(tmp_path: Path) -> None:
    """After each rename of a file that is to last, its folder is synced."""
    trace, folder = tmp_path / "trace", tmp_path / "folder"
    folder.mkdir()
    code = "import sys; from rla_client.storage import write_atomic; write_atomic(sys.argv[1], b'content')"
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


def test_one_error_among_many_files(
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    """So many that they are synced in threads."""
    trace = tmp_path / "trace"
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT:\n  commit_interval_s: 0.1\n")
    bare_agent.spawn(*failing(trace, tmp_path / "run0" / "progress.csv", "3"), config=config)
    all_of_them = [trainer(f"run{number}", *PACE) for number in range(5)]
    wait_until(lambda: "EIO" in trace.read_text() if trace.exists() else False, 30)
    targets = [one.told + 200 for one in all_of_them]
    wait_until(lambda: all(one.told > target for one, target in zip(all_of_them, targets, strict=True)))
    for one in all_of_them:
        one.stop()
    bare_agent.drain(wait_until)
    kill_traced(bare_agent, places, wait_until)
    for one in all_of_them:
        check_folder(one)
