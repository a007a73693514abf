"""The agent and the trainer are killed at their k-th write, fsync, rename, unlink, truncate, by strace."""

# ruff: noqa: E501, PLR0913, PLR0917
from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from crash.zygote import Zygote
from support.oracle import Trainer, check_folder

from rla_agent.outputs.formats import make_outputs
from rla_agent.pipeline.segment_reader import read_opening
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.segments import stream_names

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

FILE_CALLS = ("pwrite64", "fsync", "fdatasync", "ftruncate")  # on outputs, their folders, the stream's
ANY_CALLS = ("write", "fsync", "fdatasync", "rename", "renameat", "unlink", "unlinkat", "rmdir")
QUICK = (
    ("pwrite64", 2, True), ("pwrite64", 7, True), ("fdatasync", 1, True), ("fsync", 4, True), ("fsync", 6, False),
    ("fdatasync", 5, False), ("renameat", 1, False), ("rename", 2, False), ("unlink", 2, False),
)  # fmt: skip
DATABASE_WRITES = range(40, 1200, 61)  # mostly the WAL, which each start grows
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
        name = stream_names(places.spool)[0]
        stream = places.spool / name
        opening, _ = read_opening(stream)
        paths = [output.path for output in make_outputs(opening, name)]
        self.paths = sorted({*paths, *map(os.path.dirname, paths), str(stream), str(places.spool)})

    def restore(self) -> None:
        """The spool as recorded, an empty folder (the same inode), no agent.db."""
        for path in self.trainer.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.places.spool)
        shutil.copytree(self.store / "spool", self.places.spool)
        for path in self.places.state.glob("agent.db*"):
            path.unlink()

    def strace(self, call: str, k: int, *, only_files: bool) -> list[str]:
        """The command that kills at the k-th `call`; strace counts per thread."""
        which = [part for path in self.paths for part in ("-P", path)] if only_files else []
        return [
            "strace", "-f", "-qq", "-o", "/dev/null", *which, "-e", f"trace={call}",
            "-e", f"inject={call}:signal=KILL:when={k}",
        ]  # fmt: skip


@pytest.fixture
def repeat(places: Places, trainer: Callable[..., Trainer], tmp_path: Path) -> Repeat:
    one = trainer("run", "--rows", str(ROWS), "--segment-bytes", "32768")
    one.ended()
    store = tmp_path / "recorded"
    store.mkdir()
    return Repeat(places, one, store)


def killed_at(
    repeat: Repeat,
    agent: BareAgent,
    strace: list[str],
    wait_until: Callable[..., object],
    *,
    forget: bool,
    zygote: Zygote | None = None,
) -> bool:
    """Let strace kill the agent, another finish, and compare; False when it never came to the call."""
    repeat.restore()
    places = repeat.places
    agent.spawn(*strace, config=repeat.config)
    process = agent.process
    assert process is not None
    wait_until(lambda: process.poll() is not None or not stream_names(places.spool), 60)
    ended = process.poll() is not None
    if not ended:
        agent.kill_traced()
    if forget:
        for path in places.state.glob("agent.db*"):
            path.unlink()
    agent.spawn(config=repeat.config, zygote=zygote)
    agent.drain(wait_until)
    agent.kill()
    assert check_folder(repeat.trainer) == ROWS, f"{strace[-1]}, agent.db deleted: {forget}"
    return ended


@pytest.mark.slow
@pytest.mark.parametrize(("call", "k", "only_files"), QUICK)
def test_agent_killed_at_a_call(
    call: str,
    k: int,
    only_files: bool,
    repeat: Repeat,
    bare_agent: BareAgent,
    wait_until: Callable[..., object],
) -> None:
    strace = repeat.strace(call, k, only_files=only_files)
    assert killed_at(repeat, bare_agent, strace, wait_until, forget=k % 2 == 0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize(
    ("call", "only_files"), [*((call, True) for call in FILE_CALLS), *((call, False) for call in ANY_CALLS)]
)
def test_agent_killed_at_each_call(
    call: str,
    only_files: bool,
    forget: bool,
    repeat: Repeat,
    bare_agent: BareAgent,
    wait_until: Callable[..., object],
    zygote: Zygote,
) -> None:
    k = 1
    while killed_at(
        repeat, bare_agent, repeat.strace(call, k, only_files=only_files), wait_until,
        forget=forget, zygote=zygote,
    ):  # fmt: skip
        k += 1
    print(f"{call}: killed at {k - 1} calls")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_agent_killed_at_writes_of_the_database(
    repeat: Repeat, bare_agent: BareAgent, wait_until: Callable[..., object], zygote: Zygote
) -> None:
    for k in DATABASE_WRITES:
        killed_at(
            repeat,
            bare_agent,
            repeat.strace("pwrite64", k, only_files=False),
            wait_until,
            forget=False,
            zygote=zygote,
        )


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
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", TRAINER_CALLS)
def test_trainer_killed_at_each_call(
    call: str, trainer: Callable[..., Trainer], bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    bare_agent.spawn()
    k = 1
    while trainer_killed_at(trainer, bare_agent, call, k, wait_until):
        k += 1
    print(f"{call}: killed at {k - 1} calls")


@pytest.mark.slow
@pytest.mark.parametrize(("call", "k"), [("write", 17), ("write", 18), ("rename", 3)])
def test_trainer_killed_at_a_call(
    call: str,
    k: int,
    trainer: Callable[..., Trainer],
    bare_agent: BareAgent,
    wait_until: Callable[..., object],
) -> None:
    bare_agent.spawn()
    assert trainer_killed_at(trainer, bare_agent, call, k, wait_until)
