"""No code from data: agent and replicator meet evil pickles everywhere and never load one.

Both run with an audit hook from their first line on (`sitecustomize`). It tells of every class that a pickle
names, of every program text that our packages or a pickle have compiled or executed, and of every process that is
started.
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from crash.conftest import BareAgent
from support.replication_lab import Sshd, tree

from rla_client.contract.agent.places import Places

TRAINING = Path(__file__).with_name("evil_training.py")
HOOK = """
import os, sys

target = os.open(os.environ["RLA_TEST_AUDIT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
# program text is executed by imports and by what builds classes; never by these
SUSPECTS = ("rla_agent", "rla_client", "pickle", "<string>")
WATCHED = {"pickle.find_class", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "marshal.loads"}

def tell(event, arguments):
    if event not in WATCHED:
        return
    try:
        caller = sys._getframe(1).f_code.co_filename
    except ValueError:  # the interpreter itself starts a program
        return
    if event in {"exec", "compile", "marshal.loads"} and not any(one in caller for one in SUSPECTS):
        return
    what = arguments[1] if event == "subprocess.Popen" else arguments[:1]
    os.write(target, f"{os.getpid()}\\t{event}\\t{caller}\\t{what!r:.300}\\n".encode("utf-8", "replace"))

os.write(target, f"{os.getpid()}\\tstarted\\t\\t{' '.join(sys.orig_argv)}\\n".encode())
sys.addaudithook(tell)
"""


class Audit:
    """What the hook told, in all processes that had it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.file = folder / "events"
        (folder / "sitecustomize.py").write_text(textwrap.dedent(HOOK))
        self.prefix = ("env", f"PYTHONPATH={folder}:{os.getcwd()}", f"RLA_TEST_AUDIT={self.file}")
        self.environment = {
            **os.environ, "PYTHONPATH": f"{folder}:{os.getcwd()}", "RLA_TEST_AUDIT": str(self.file),
        }  # fmt: skip

    def events(self, *kinds: str) -> list[list[str]]:
        return [
            event for line in self.file.read_text().splitlines() if (event := line.split("\t"))[1] in kinds
        ]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(tmp_path / "audit")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(tmp_path / "sshd").start()
    yield server
    server.stop()


def test_the_hook_sees_a_pickle_that_is_loaded(audit: Audit) -> None:
    """Or nothing below means anything."""
    code = "import pickle; [pickle.loads(data) for data in (b'cos\\nsystem\\n(Vtrue\\ntR.', b'cbuiltins\\nexec\\n(V1\\ntR.')]"
    subprocess.run([sys.executable, "-c", code], env=audit.environment, check=True)
    kinds = ("pickle.find_class", "os.system", "exec", "compile")
    assert {event[1] for event in audit.events(*kinds)} == set(kinds)


def kept_and_sent(master: Sshd, root: Path, said: str, wait_until: Callable[..., Any]) -> dict[str, str]:
    """The evil files, once all of them and the end of the run are on the master."""
    log = Path(next(line for line in said.splitlines() if line.startswith("/")))
    state = master.root / log.relative_to(root.resolve()) / "run.json"
    wait_until(lambda: state.exists() and json.loads(state.read_text())["state"] == "finished", 60)
    here = {path: sha for path, sha in tree(root).items() if path.endswith((".pt", ".pkl", ".state"))}
    wait_until(lambda: here.items() <= tree(master.root).items(), 60, what="evil files on the master")
    return here


@pytest.mark.slow
def test_evil_pickles_stay_bytes(
    audit: Audit, master: Sshd, bare_agent: BareAgent, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    root, config, mark = tmp_path / "data", tmp_path / "rla_config.yaml", tmp_path / "MARK"
    root.mkdir()
    setting: dict[str, Any] = {
        "SEND_LOG_FILE": True,
        "REMOTE_SETTING": master.remote(),
        "LOG_USED": ["csv", "log", "tensorboard"],
    }
    config.write_text(yaml.safe_dump(setting))
    bare_agent.places.stopped_marker.touch()
    bare_agent.spawn(*audit.prefix)
    wait_until(bare_agent.serves)
    done = subprocess.run(
        [sys.executable, str(TRAINING), str(root), str(config), str(mark)],
        env={**os.environ, "PYTHONPATH": os.getcwd()}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    try:
        bare_agent.drain(wait_until, 120)
        here = kept_and_sent(master, root, done.stdout, wait_until)
    finally:
        bare_agent.signal(signal.SIGTERM)  # its replicator goes with it
        bare_agent.process.wait(60)  # type: ignore[union-attr]
    listed = subprocess.run(
        [sys.executable, "-m", "rla_client.cli.app", "ls", "--data-root", str(master.root)],
        env=audit.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    check_events(audit, "rla_agent.daemon", "rla_agent.replicate.worker.main", "rla_client.cli.app")
    assert len(here) >= 4 * 6, sorted(here)
    assert not list(tmp_path.glob("MARK*")), "an evil pickle was loaded"
    print(f"{len(here)} evil files kept and replicated; nothing loaded")


@pytest.mark.slow
def test_evil_figures_of_a_copied_spool_stay_bytes(audit: Audit, places: Places, tmp_path: Path) -> None:
    root, config, mark, copy = (tmp_path / name for name in ("data", "rla_config.yaml", "MARK", "copy"))
    root.mkdir()
    config.write_text(yaml.safe_dump({"LOG_USED": ["csv"]}))
    places.stopped_marker.touch()
    subprocess.run(
        [sys.executable, str(TRAINING), str(root), str(config), str(mark), "--figures"],
        env={**os.environ, "PYTHONPATH": os.getcwd()}, capture_output=True, timeout=200, check=True,
    )  # fmt: skip
    shutil.copytree(places.spool, copy)
    drained = subprocess.run(
        [sys.executable, "-m", "rla_agent", "drain", "--spool", str(copy)],
        env=audit.environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (drained.returncode, "18 figure(s) stay in this spool, not drawn. " in drained.stdout) == (
        1,
        True,
    ), drained
    check_events(audit, "rla_agent drain")
    assert len(list(root.glob("checkpoint/**/*.pt"))) == 6, "the rest was taken in"
    assert not list(tmp_path.glob("MARK*")), "an evil pickle was loaded"


def check_events(audit: Audit, *programs: str) -> None:
    """All programs were watched, loaded and executed nothing, and started only what they should."""
    started = " ".join(event[3] for event in audit.events("started"))
    for one in programs:
        assert one in started, started
    bad = audit.events(
        "pickle.find_class", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "marshal.loads"
    )
    assert bad == [], bad
    others = [event[3] for event in audit.events("subprocess.Popen")]
    known = (
        "rla_agent.replicate.worker.main",
        "'ssh'",
        "ssh-keygen",
        "rla_client/database",
        "sysctl",
        "nvidia-smi",
    )
    assert all(any(name in one for name in known) for one in others), others
