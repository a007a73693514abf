"""The agent and the trainer are killed at their k-th write, fsync, rename, unlink, truncate, by strace."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.conftest import BareAgent
from crash.oracle import Trainer, check_folder
from rla_agent.lock import read_holder
from rla_client.places import Places
from rla_client.spool import stream_names

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

AGENT_CALLS = ("write", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "unlink", "unlinkat", "ftruncate")
QUICK = (("pwrite64", 6), ("fsync", 4), ("fdatasync", 3), ("renameat", 1), ("rename", 2), ("unlink", 1))
TRAINER_CALLS = ("write", "rename", "openat")
ROWS = 1000
FAST_CONFIG = "AGENT:\n  commit_interval_s: 0.05\n"


class Repeat:
    """One recorded spool, taken in again and again, each time with another kill."""

    def __init__(self, places: Places, trainer: Trainer, store: Path) -> None:
        self.places = places
        self.trainer = trainer
        self.store = store
        shutil.copytree(places.spool, store / "spool")
        self.config = store / "rla_config.yaml"
        self.config.write_text(FAST_CONFIG)

    def restore(self) -> None:
        """The spool as recorded, an empty folder (the same inode), no agent.db."""
        for path in self.trainer.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.places.spool)
        shutil.copytree(self.store / "spool", self.places.spool)
        for path in self.places.state.glob("agent.db*"):
            path.unlink()


@pytest.fixture
def repeat(places: Places, trainer: Callable[..., Trainer], tmp_path: Path) -> Repeat:
    one = trainer("run", "--rows", str(ROWS), "--segment-bytes", "32768")
    one.ended()
    store = tmp_path / "recorded"
    store.mkdir()
    return Repeat(places, one, store)


def killed_at(
    repeat: Repeat, agent: BareAgent, call: str, k: int, wait_until: Callable[..., object], *, forget: bool
) -> bool:
    """Kill the agent at its k-th `call`, let another finish, compare; False when it never came to that."""
    repeat.restore()
    places = repeat.places
    agent.spawn(
        "strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={k}",
        config=repeat.config,
    )  # fmt: skip
    process = agent.process
    assert process is not None
    wait_until(lambda: process.poll() is not None or not stream_names(places.spool), 60)
    ended = process.poll() is not None
    if not ended:
        end_traced(agent, places, wait_until)
    if forget:
        for path in places.state.glob("agent.db*"):
            path.unlink()
    agent.spawn(config=repeat.config)
    agent.drain(wait_until)
    agent.kill()
    assert check_folder(repeat.trainer) == ROWS, f"killed at {call} {k}, agent.db deleted: {forget}"
    return ended


def end_traced(agent: BareAgent, places: Places, wait_until: Callable[..., object]) -> None:
    """Kill an agent that strace started; strace ends with it."""
    import os

    pid = read_holder(places).get("pid")
    if isinstance(pid, int):
        os.kill(pid, 9)
    process = agent.process
    assert process is not None
    wait_until(lambda: process.poll() is not None)


@pytest.mark.parametrize(("call", "k"), QUICK)
def test_agent_killed_at_a_call(
    call: str, k: int, repeat: Repeat, bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    assert killed_at(repeat, bare_agent, call, k, wait_until, forget=k % 2 == 0)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("call", AGENT_CALLS)
def test_agent_killed_at_each_call(
    call: str, forget: bool, repeat: Repeat, bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    k = 1
    while killed_at(repeat, bare_agent, call, k, wait_until, forget=forget):
        k += 1
    print(f"{call}: killed at {k - 1} calls")


def trainer_killed_at(
    trainer: Callable[..., Trainer], agent: BareAgent, call: str, k: int, wait_until: Callable[..., object]
) -> bool:
    """Kill a trainer at its k-th `call` below the spool; compare what it told."""
    one = trainer(
        f"{call}-{k}", "--rows", "60", "--segment-bytes", "4096",
        command=("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                 f"inject={call}:signal=KILL:when={k}"),
    )  # fmt: skip
    one.ended()
    agent.drain(wait_until)
    check_folder(one)
    return one.process.returncode != 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("call", TRAINER_CALLS)
def test_trainer_killed_at_each_call(
    call: str, trainer: Callable[..., Trainer], bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    bare_agent.spawn()
    k = 1
    while trainer_killed_at(trainer, bare_agent, call, k, wait_until):
        k += 1
    print(f"{call}: killed at {k - 1} calls")


@pytest.mark.parametrize(("call", "k"), [("write", 17), ("write", 18), ("rename", 3)])
def test_trainer_killed_at_a_call(
    call: str, k: int, trainer: Callable[..., Trainer], bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    bare_agent.spawn()
    assert trainer_killed_at(trainer, bare_agent, call, k, wait_until)
