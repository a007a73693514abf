"""A frozen agent, a jumping clock, SIGTERM, a second agent."""

# ruff: noqa: E501
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from crash.conftest import BareAgent
from support.oracle import Trainer, check_folder, csv_seqs
from support.waiting import TIME_FACTOR

PACE = ("--burst", "40", "--pause", "0.02", "--segment-bytes", "131072")
DRAINED_WITHIN_S = 20.0
FROZEN_S = 60.0


@pytest.mark.slow
def test_agent_frozen_while_the_clock_jumps(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], wait_until: Callable[..., object]
) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", "--jump-clock", "--worker", *PACE)
    for _ in range(3):
        bare_agent.signal(signal.SIGSTOP)
        target = one.told + 2500
        wait_until(lambda target=target: one.told > target)
        bare_agent.signal(signal.SIGCONT)
        target = one.told + 500
        wait_until(lambda target=target: one.told > target)
    one.stop()
    bare_agent.drain(wait_until)
    check_folder(one)
    assert len(list((one.folder / "tb").glob("[!s]*/*"))) == 2


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_agent_and_trainer_frozen_for_a_minute_each(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], wait_until: Callable[..., object]
) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", "--jump-clock", "--worker", *PACE)
    wait_until(lambda: one.told > 1000)
    spent = []
    for frozen in (bare_agent.process, one.process):
        assert frozen is not None
        frozen.send_signal(signal.SIGSTOP)
        told, until = one.told, time.monotonic() + FROZEN_S
        wait_until(lambda until=until: time.monotonic() > until, FROZEN_S + 10)
        assert one.told > told + 1000 or frozen is one.process, "training stood still with the agent"
        frozen.send_signal(signal.SIGCONT)
        target, before = one.told + 1000, cpu_of(bare_agent)
        wait_until(lambda target=target: one.told > target)
        spent.append(cpu_of(bare_agent) - before)
    assert bare_agent.serves()
    one.stop()
    bare_agent.drain(wait_until)
    rows = check_folder(one)
    assert len(list((one.folder / "tb").glob("[!s]*/*"))) == 2
    print(
        f"agent and trainer frozen {FROZEN_S:.0f} s each under a jumping clock: {rows} rows, each once, one event file a "
        f"stream; the agent took {spent[0]:.1f} and {spent[1]:.1f} s of CPU to go on"
    )


def cpu_of(agent: BareAgent) -> float:
    """Seconds of CPU that it has used."""
    times = psutil.Process(agent.process.pid).cpu_times()  # type: ignore[union-attr]
    return float(times.user + times.system)


JUMPING = """
import time
real, calls = time.time, [0]

def jumping():
    calls[0] += 1
    return real() + (-86400.0, 0.0, 86400.0)[calls[0] // 50 % 3]

time.time = jumping
"""


@pytest.mark.slow
def test_agent_whose_clock_jumps_a_day(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], wait_until: Callable[..., object], tmp_path: Path
) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(JUMPING)
    bare_agent.spawn("env", f"PYTHONPATH={hook}:{os.getcwd()}")
    wait_until(bare_agent.serves)
    one = trainer("run", "--worker", *PACE)
    wait_until(lambda: one.told > 5000)
    bare_agent.kill()
    bare_agent.spawn("env", f"PYTHONPATH={hook}:{os.getcwd()}")
    target = one.told + 5000
    wait_until(lambda: one.told > target)
    one.stop()
    bare_agent.drain(wait_until)
    rows = check_folder(one)
    assert len(list((one.folder / "tb").glob("[!s]*/*"))) == 2
    assert json.loads((one.folder / "run.json").read_text())["state"] == "finished"
    print(f"an agent whose clock jumps by a day, killed once: {rows} rows, each once")


@pytest.mark.slow
def test_sigterm_takes_in_what_is_there(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], wait_until: Callable[..., object]
) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("run", "--burst", "400", "--pause", "0.02")
    wait_until(lambda: one.told > 5000)
    told = one.told
    began = time.monotonic()
    bare_agent.signal(signal.SIGTERM)
    process = bare_agent.process
    assert process is not None
    assert process.wait(DRAINED_WITHIN_S * TIME_FACTOR) == 0
    seconds = time.monotonic() - began
    there = csv_seqs(one.folder / "progress.csv")
    print(
        f"drained in {seconds:.1f} s under a trainer that went on; {told} were told, {len(there)} are there"
    )
    assert len(there) >= told
    one.stop()
    bare_agent.spawn()
    bare_agent.drain(wait_until)
    check_folder(one)


def test_second_agent_names_the_holder(bare_agent: BareAgent, wait_until: Callable[..., object]) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    assert bare_agent.process is not None
    for command in (["rla_agent.daemon"], ["rla_agent", "start"]):
        second = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert second.returncode == 3, second.stderr
        assert str(bare_agent.process.pid) in second.stderr, second.stderr
    assert bare_agent.serves()


@pytest.mark.slow
def test_replay_is_fast(
    bare_agent: BareAgent, trainer: Callable[..., Trainer], wait_until: Callable[..., object]
) -> None:
    one = trainer("run", "--rows", "60000", "--sinks", "csv,tensorboard")
    one.ended()
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    began = time.monotonic()
    path: Path = one.folder / "tb"
    bare_agent.drain(wait_until, 60)
    seconds = time.monotonic() - began
    print(
        f"60,000 rows of up to 6 keys replayed in {seconds:.2f} s after serving: {60_000 / seconds:,.0f} rows/s"
    )
    assert path.is_dir()
    assert check_folder(one, ("csv", "tensorboard")) == 60_000
