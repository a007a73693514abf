"""Pruned checkpoints come back through the agent when they are loaded."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.replication_lab import Sshd

from rla_client.contract.item.prune_notes import pruned_files

NAMED_WITHIN_S = 120.0  # loading may take ten minutes where the master is slow, not where it is away

TRAIN = """
import torch
open_run(); exp_manager.log_files_gen(); exp_manager.new_saver()
for step in (10, 20, 30):
    time_step_holder.set_time(step)
    logger.record_tabular('x', step); logger.dump_tabular()
    exp_manager.save_checkpoint({'w': torch.full((50_000,), float(step))}, related_variable={'lr': step})
exp_manager.flush(60)
print(exp_manager.log_dir)
"""
HEAD = """
import sys
from rla_client import ExperimentLoader, exp_manager, logger, time_step_holder
root, config = sys.argv[1:3]
def open_run(**kw):
    exp_manager.configure('t', config, root, **kw)
    exp_manager.set_hyper_param(lr=0.1)
"""


class Lab:
    """A project whose ended run is on the master, and its older checkpoints there alone."""

    def __init__(self, folder: Path, master: Sshd, agent: Any, wait_until: Callable[..., Any]) -> None:
        folder.mkdir()
        self.root, self.config = folder / "data", folder / "rla_config.yaml"
        self.master, self.agent = master, agent
        self.root.mkdir()
        content = {
            "LOG_USED": ["csv"],
            "SEND_LOG_FILE": True,
            "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]},
            "REMOTE_SETTING": master.remote(),
        }
        self.config.write_text(yaml.safe_dump(content))
        said = self.run(TRAIN).stdout.split()[-1]
        self.log = Path(said)
        self.index = "/".join(self.log.parts[-4:])
        self.checkpoints = self.root / "checkpoint" / "t" / self.index
        there = master.root / "log" / "t" / self.index / "SHA256SUMS"
        wait_until(there.exists, 40, what="the run on the master")
        with closing(sqlite3.connect(agent.places.state / "replicate" / "ledger.db", timeout=10)) as db:
            db.execute("UPDATE files SET sent_at = sent_at - 600, check_at = NULL")
            db.commit()
        done = agent.command("prune", "--max", "1", "--apply", "--json")
        assert done.returncode == 0, done.stderr
        assert {note.name for note in pruned_files(self.checkpoints)} == self.older

    older = frozenset({"checkpoint_10.pt", "checkpoint_20.pt"})

    def run(self, code: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", HEAD + textwrap.dedent(code), self.root, self.config],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=NAMED_WITHIN_S,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def load(self, step: int, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        date = self.index[:26]
        return self.run(
            f"""
            loader = ExperimentLoader(); loader.config('t', '{date}', root)
            step, content, _ = loader.load_from_record_date(ckp_index={step}, verbose=False)
            assert step == {step} and float(content['w'][7]) == {step}.0, (step, content)
            """,
            check,
            **variables,
        )


@pytest.fixture
def lab(
    tmp_path: Path, master: Sshd, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> Iterator[Lab]:
    agent = new_agent().start()
    yield Lab(tmp_path / "project", master, agent, wait_until)
    agent.stop()


@pytest.mark.slow
def test_loading_brings_it_back_whole_and_as_it_was(lab: Lab, wait_until: Callable[..., Any]) -> None:
    notes = {note.name: note for note in pruned_files(lab.checkpoints)}
    target = lab.checkpoints / "checkpoint_20.pt"
    sizes = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if target.exists():
                sizes.add(target.stat().st_size)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        lab.load(20)
    finally:
        done.set()
        watcher.join()
    assert sizes == {notes[target.name].size}  # under its name it never was shorter
    assert target.stat().st_mtime_ns == notes[target.name].mtime_ns
    assert {note.name for note in pruned_files(lab.checkpoints)} == {"checkpoint_10.pt"}
    lab.run(
        f"""
        open_run()
        at, content = exp_manager.resume('{lab.index}', at=10)
        assert at == 10 and float(content['w'][0]) == 10.0
        assert exp_manager.get_custom_data('lr') == 10
        """
    )
    wait_until(lambda: not pruned_files(lab.checkpoints))
    shown = lab.agent.command("transfer", "fetch", str(lab.checkpoints))
    assert "fetched 0 file(s)" in shown.stdout


@pytest.mark.further
@pytest.mark.slow
def test_what_is_away_is_named_in_time_and_later_it_works(lab: Lab) -> None:
    lab.master.stop()
    failed = lab.load(10, check=False)
    assert "FetchError" in failed.stderr
    assert "checkpoint_10.pt was pruned here and must come from the master" in failed.stderr
    lab.load(30)  # the newest never left
    lab.master.start()
    assert lab.master._process is not None
    lab.master._process.send_signal(signal.SIGSTOP)  # new logins hang
    try:
        failed = lab.load(10, check=False, RLA_FETCH_TIMEOUT_S="2")
        assert "not done after 2 s" in failed.stderr
        assert not (lab.checkpoints / "checkpoint_10.pt").exists()  # later, what was asked for may come
    finally:
        lab.master._process.send_signal(signal.SIGCONT)
    lab.load(10)
    assert lab.agent.command("stop").returncode == 0
    failed = lab.load(20, check=False)
    assert "no agent is running here; start one: rla-agent start" in failed.stderr


@pytest.mark.slow
def test_other_content_on_the_master_is_refused(lab: Lab) -> None:
    there = lab.master.root / "checkpoint" / "t" / lab.index / "checkpoint_10.pt"
    data = bytearray(there.read_bytes())
    data[-1000] ^= 1
    there.write_bytes(data)
    failed = lab.load(10, check=False)
    assert "other content than was sent" in failed.stderr
    assert not (lab.checkpoints / "checkpoint_10.pt").exists()
    assert [path.name for path in lab.checkpoints.glob(".rla-tmp*")] == []
    there.unlink()
    assert "is no longer on the master" in lab.load(10, check=False).stderr
    shown = rla("show", lab.index, "-d", lab.root)
    assert "checkpoints on the master, fetched when loaded\n  checkpoint_10.pt, checkpoint_20.pt" in shown
    assert "on the master alone" in rla("du", "-d", lab.root)
    assert "no faults" in rla("fsck", "-d", lab.root)


def rla(*words: object) -> str:
    code = "from rla_client.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
