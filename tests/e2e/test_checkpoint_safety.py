"""The newest checkpoint whose save returned always loads: agent killed, stopped, disk full."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.agent.places import Places
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.job.arena_layout import ArenaName, spool_key
from rla_client.contract.layout import DROPPED_NOTE

torch = pytest.importorskip("torch", reason="needs PyTorch")

KEPT_BESIDE = {".resume", DROPPED_NOTE}
TRAINER = """
import os, sys, torch
from rla_client import exp_manager, logger, time_step_holder
root, keep, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = {'LOG_USED': ['csv'], 'BACKUP_CONFIG': {'backup_code_dir': []}}
exp_manager.configure('t', config, root, code_root='.')
exp_manager.log_files_gen()
exp_manager.new_saver(keep)
for line in sys.stdin:
    word, _, step = line.strip().partition(' ')
    if word == 'save':
        time_step_holder.set_time(int(step))
        exp_manager.save_checkpoint({'w': torch.full((mib << 18,), float(step)), 'step': int(step)})
        print('returned', step, flush=True)
    elif word == 'again':
        stage, _, at = step.partition(' ')
        time_step_holder.set_time(int(at))
        beside = torch.full((800_000,), float(stage), dtype=torch.float64)  # too much for the state itself
        exp_manager.save_checkpoint({'w': torch.full((1,), float(at)), 'step': int(at)},
                                    related_variable={'stage': int(stage), 'beside': beside})
        print('returned', stage, at, flush=True)
    elif word == 'load':
        at, content = exp_manager.load_checkpoint()
        assert bool((content['w'] == at).all())
        print('loaded', at, flush=True)
    elif word == 'flush':
        print('flushed', exp_manager.flush(60), flush=True)
"""


RESUMED = """
import sys
from rla_client import exp_manager
root, index = sys.argv[1:]
config = {'LOG_USED': ['csv'], 'BACKUP_CONFIG': {'backup_code_dir': []}}
exp_manager.configure('t', config, root, code_root='.')
at, content = exp_manager.resume(index)
print(at, exp_manager.get_custom_data('stage'), float(exp_manager.get_custom_data('beside').max()))
"""


class Trainer:
    """A training process that does what it is told, a line at a time."""

    def __init__(self, data: Path, keep: int, mib: int) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(data), str(keep), str(mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> str:
        """Give an order; returns the answer, once it is there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        for answer in self.process.stdout:
            if answer.startswith(("returned", "loaded", "flushed")):
                return answer.strip()
        pytest.fail("the trainer ended")

    def end(self, number: int = signal.SIGKILL) -> None:
        """Kill it."""
        self.process.send_signal(number)
        self.process.communicate()

    @property
    def files(self) -> list[str]:
        """Names in the checkpoint folder, without what resume and the copy on the master need."""
        folders = list(self.data.glob("checkpoint/t/*/*/*/*"))
        return sorted(entry for folder in folders for entry in os.listdir(folder) if entry not in KEPT_BESIDE)

    @property
    def writing(self) -> bool:
        """Whether a checkpoint is being written right now, or was when the agent was killed."""
        return any(name.startswith(TEMP_PREFIX) for name in self.files)

    def steps(self) -> list[int]:
        """Of the visible checkpoints; each must load with the values that it was saved with."""
        found = []
        for path in sorted(self.data.glob("checkpoint/t/*/*/*/*/*.pt")):
            with contextlib.suppress(FileNotFoundError):  # superseded just now
                content = torch.load(path, weights_only=True)
                assert bool((content["w"] == content["step"]).all()), path
                assert path.stem.endswith(f"_{content['step']}")
                found.append(content["step"])
        return sorted(found)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def make(keep: int = 2, mib: int = 24, data: Path = tmp_path / "data") -> Trainer:
        made.append(Trainer(data, keep, mib))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.end()


def arenas(places: Places) -> set[str]:
    """Shared memory of streams of this spool; other tests have theirs."""
    own = spool_key(places.spool)
    parsed = map(ArenaName.parse, os.listdir("/dev/shm"))
    return {name.text for name in parsed if name is not None and name.spool_key == own}


@pytest.mark.slow
def test_an_agent_killed_in_the_middle_of_writing(
    agent: Any, trainer: Callable[..., Trainer], wait_until: Callable[..., Any]
) -> None:
    run = trainer()
    run.say("save 1")
    assert run.say("flush") == "flushed True"
    assert arenas(agent.places), "checkpoints go through shared memory"
    caught, newest = 0, 1
    for step in range(2, 60):
        run.say(f"save {step}")
        while not run.writing and f"checkpoint_{step}.pt" not in run.files:
            pass  # no pause: writing is short
        agent.kill()
        caught += run.writing
        assert max(run.steps()) >= newest, "what is newest stays until a newer one is durable"
        newest = max(run.steps())
        assert run.say("load") == f"loaded {step}"
        agent.start()
        if caught >= 3 or (caught and step > 10):
            break
    assert caught, "no kill hit a write"
    assert run.say("flush") == "flushed True"
    assert run.steps() == [step - 1, step]
    assert len(run.files) == 2, "no temp file is left"
    run.end()
    wait_until(lambda: not arenas(agent.places), what="end of the shared memory")


@pytest.mark.slow
def test_ten_saves_while_the_agent_is_stopped_and_a_kill(
    agent: Any, trainer: Callable[..., Trainer], wait_until: Callable[..., Any]
) -> None:
    run = trainer(mib=8)
    run.say("save 1")
    assert run.say("flush") == "flushed True"
    agent.send_signal(signal.SIGSTOP)
    for step in range(2, 12):
        assert run.say(f"save {step}") == f"returned {step}"
    assert run.say("load") == "loaded 11"
    assert run.steps() == [1], "nothing is deleted before the newer one is durable"
    run.end()
    agent.send_signal(signal.SIGCONT)
    wait_until(lambda: run.steps() == [10, 11])
    wait_until(lambda: not arenas(agent.places), what="end of the shared memory")


@pytest.mark.slow
def test_a_stage_that_repeats_time_steps_while_the_agent_is_stopped_keeps_its_states(
    agent: Any, trainer: Callable[..., Trainer], wait_until: Callable[..., Any]
) -> None:
    run = trainer(keep=1)
    run.say("again 1 5")
    assert run.say("flush") == "flushed True"
    agent.send_signal(signal.SIGSTOP)
    for stage, step in ((1, 10), (1, 20), (2, 10)):
        assert run.say(f"again {stage} {step}") == f"returned {stage} {step}"
    agent.send_signal(signal.SIGCONT)
    assert run.say("flush") == "flushed True"
    wait_until(lambda: run.steps() == [10])
    (folder,) = run.data.glob("checkpoint/t/*/*/*/*")
    wait_until(
        lambda: {path.name.partition(".")[0] for path in (folder / ".resume").iterdir()} == {"checkpoint_10"}
    )
    assert len(os.listdir(folder / ".resume")) == 3
    run.end()
    index = str(folder.relative_to(run.data / "checkpoint" / "t"))
    done = subprocess.run(
        [sys.executable, "-c", RESUMED, str(run.data), index],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split()[-3:] == ["10", "2", "2.0"], done.stderr


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_delays_the_newer_and_keeps_the_older(
    agent: Any, trainer: Callable[..., Trainer], wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    data = tmp_path / "small"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=700", "rla-test", str(data)], check=True)
    try:
        run = trainer(keep=1, mib=16, data=data)
        run.say("save 1")
        assert run.say("flush") == "flushed True"
        ballast = data / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for _ in range(10_000):
                file.write(bytes(1 << 14))
        assert run.say("save 2") == "returned 2"
        assert run.say("load") == "loaded 2"
        assert run.steps() == [1]
        assert agent.alive
        ballast.unlink()
        wait_until(lambda: run.steps() == [2], 60)
        assert run.files == ["checkpoint_2.pt"]
        run.end()
        wait_until(lambda: not list((agent.places.spool).iterdir()))
    finally:
        agent.kill()
        subprocess.run(["umount", "-l", str(data)], check=True)
