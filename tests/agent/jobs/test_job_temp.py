"""Temp names of jobs: whose they are, and which are left-overs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rla_agent.jobs.job_temp import fresh_temp
from rla_client.contract.spool.writer_liveness import process_start

TOKEN = "0123456789abcdef"
STEM = f".rla-tmp-{TOKEN}"


def test_only_what_dead_processes_left_of_a_job_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            lives = f"{STEM}-{other.pid}-{process_start(other.pid)}"
            reused = f"{STEM}-{other.pid}-1"  # the pid of a process that is no more
            another_job = ".rla-tmp-fedcba9876543210-1-1"
            stay = {lives, f"{lives}-2", another_job, f"{STEM}.pt", "checkpoint_1.pt"}
            go = {
                STEM,
                f"{STEM}-2",
                reused,
                f"{reused}-2",
                f"{STEM}-{os.getpid()}-{process_start(os.getpid())}",
            }
            for name in stay | go:
                (tmp_path / name).touch()
            temp = fresh_temp(tmp_path, TOKEN)
            assert set(os.listdir(tmp_path)) == stay
            assert temp not in stay
        finally:
            other.kill()


def test_a_process_gives_a_job_one_name(tmp_path: Path) -> None:
    assert fresh_temp(tmp_path, TOKEN) == fresh_temp(tmp_path, TOKEN)
    assert str(os.getpid()) in fresh_temp(tmp_path, TOKEN)
