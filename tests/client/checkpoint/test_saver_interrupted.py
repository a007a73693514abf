"""The saver through signals, exceptions, threads, forks and kills."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.forked import in_forked_child

torch = pytest.importorskip("torch")

from support.checkpoint_lab import (  # noqa: E402
    arenas_of,
    assert_is,
    content,
    jobs_of,
    lock_held,
    swept,
    work,
)

from rla_agent.pipeline.checkpoint_jobs import Outcome, release  # noqa: E402
from rla_client.checkpoint.files import list_checkpoints, load_file  # noqa: E402
from rla_client.checkpoint.saver import CheckpointSaver  # noqa: E402
from rla_client.contract.paths import Places  # noqa: E402
from rla_client.contract.segments import stream_names  # noqa: E402

TRAINER = """
    import os, sys, torch
    from pathlib import Path
    from rla_client.checkpoint.saver import CheckpointSaver
    from rla_client.config.schema import AgentConfig
    from rla_client.contract.paths import find_places
    from rla_client.run.run import make_opening
    from rla_client.stream.outbox import Outbox

    def content(step):
        generator = torch.Generator().manual_seed(step)
        return {"step": step, "w": [torch.rand(50_000, generator=generator) for _ in range(4)]}

    opening = make_opening(root=sys.argv[1], folders={"log": "."}, sinks=(), names={}, item={})
    outbox = Outbox(find_places(), opening, AgentConfig(autostart=False))
    saver = CheckpointSaver(outbox, Path(sys.argv[1]), max_to_keep=2)
    if "wait" in sys.argv:
        assert saver._pool.wait_prepared(30)
"""


def test_a_signal_handler_that_saves_during_a_save(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    class Nested:
        def __reduce__(self) -> Any:
            if threading.current_thread() is threading.main_thread() and not nested:
                nested.append(1)
                signal.raise_signal(signal.SIGUSR1)
            return int, (7,)

    nested: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda *_: saver.save(content(2), time_step=2))
    try:
        with lock_held(places):
            saver.save({"x": Nested(), "w": torch.ones(3)}, time_step=1)
            assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert_is(saver.load(index=2)[1], 2)
    assert saver.load(index=1)[1]["x"] == 7


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # it may hit a weakref's callback
def test_an_exception_in_the_middle_of_the_copy_gives_the_slot_back(
    saver: CheckpointSaver, places: Places
) -> None:
    def alarm(*_: object) -> None:
        raise KeyboardInterrupt

    big = {"w": [torch.rand(1000) for _ in range(3000)]}
    old = signal.signal(signal.SIGALRM, alarm)
    interrupted = 0
    try:
        with lock_held(places):
            for delay in range(1, 40):
                try:  # two of them: the alarm may come in the inner one's end
                    try:
                        signal.setitimer(signal.ITIMER_REAL, delay * 0.0005)
                        saver.save(big, time_step=delay)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    interrupted += 1
                for job, blobs in jobs_of(places):
                    release(job, blobs)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert interrupted
    assert saver._pool is not None
    assert saver._pool.current is None or saver._pool.current.idle
    for name in os.listdir("/proc/self/fd"):  # Python may be interrupted before it keeps what open(2) gave
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == str(places.lock):
                os.close(int(name))


def test_threads_save_at_once(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    with lock_held(places):
        threads = [
            threading.Thread(target=saver.save, args=(content(step), f"t{step}", step)) for step in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
    for step in range(6):
        assert_is(saver.load(f"t{step}")[1], step)


def test_a_forked_child_leaves_the_parents_arena_alone(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    with lock_held(places):
        saver.save(content(1), time_step=1)
        second = content(2)  # a child must not calculate with tensors: PyTorch's threads are gone there

        def save_in_child() -> bool:
            saver.save(second, time_step=2)
            saver.close()
            return saver.ways["blob"] == 1

        assert in_forked_child(save_in_child)
        assert len(stream_names(places.spool)) == 2
        assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
        saver.save(content(3), time_step=3)
        assert saver.ways["arena"] == 2
        work(places, folder)
    assert_is(load_file(folder / "checkpoint_2.pt"), 2)
    assert_is(load_file(folder / "checkpoint_3.pt"), 3)


def start_trainer(
    folder: Path, body: str, *arguments: str, under: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    code = textwrap.dedent(TRAINER) + textwrap.dedent(body)
    command = [*under, sys.executable, "-c", code, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_a_trainer_killed_right_after_save_returned(
    places: Places, folder: Path, wait_until: Callable[..., Any]
) -> None:
    body = """
        for step in range(1, 1000):
            saver.save(content(step), time_step=step)
            os.write(1, b"%d\\n" % step)
    """
    with lock_held(places):
        trainer = start_trainer(folder, body, "wait")
        assert trainer.stdout is not None
        told = 0
        while told < 5:
            told = int(trainer.stdout.readline())
        trainer.kill()
        told = max([told, *map(int, trainer.stdout.read().split(b"\n")[:-1])])
        trainer.wait()
        trainer.stdout.close()
        assert arenas_of(places) != []
        assert swept(places, stream_names(places.spool)) == []  # not yet: jobs wait
        assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
    steps = [step for step, _ in list_checkpoints(folder)]
    assert steps[-1] in {told, told + 1}
    for step in steps:
        assert_is(load_file(folder / f"checkpoint_{step}.pt"), step)
    swept(places, [])
    wait_until(lambda: arenas_of(places) == [])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("k", range(11, 20))
def test_a_trainer_killed_at_each_write_of_a_blob(places: Places, folder: Path, k: int) -> None:
    """Those of the second save: the skeleton, four storages, the token, the job's frame."""
    body = """
        saver.save(content(1), time_step=1)
        os.write(1, b"1\\n")
        saver.save(content(2), time_step=2)
        os.write(1, b"2\\n")
        saver.save(content(3), time_step=3)
    """
    kill = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e")
    trainer = start_trainer(folder, body, under=(*kill, f"inject=write:signal=KILL:when={k}"))
    told = [int(line) for line in trainer.communicate()[0].split()]
    assert trainer.returncode != 0
    assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
    swept(places, [])  # a killed trainer leaves its shared memory
    steps = [step for step, _ in list_checkpoints(folder)]
    assert steps in ([*told], [*told, len(told) + 1])
    for step in steps:
        assert_is(load_file(folder / f"checkpoint_{step}.pt"), step)


@pytest.mark.slow
def test_a_forked_child_does_not_keep_a_dead_trainers_arena(
    places: Places, folder: Path, wait_until: Callable[..., Any]
) -> None:
    body = """
        child = os.fork()
        if child == 0:
            import signal
            signal.pause()
        os.write(1, b"%d\\n" % child)
        os.waitpid(child, 0)
    """
    trainer = start_trainer(folder, body, "wait")
    assert trainer.stdout is not None
    child = int(trainer.stdout.readline())
    try:
        assert swept(places, []) == []
        trainer.kill()
        trainer.wait()
        wait_until(lambda: swept(places, []) != [])
    finally:
        os.kill(child, signal.SIGKILL)
        trainer.stdout.close()


@pytest.mark.slow
def test_a_normal_exit_leaves_no_shared_memory(places: Places, folder: Path) -> None:
    with lock_held(places):
        trainer = start_trainer(folder, "saver.save(content(1), time_step=1)\n", "wait")
        assert trainer.communicate(timeout=60)[0] == b""
        assert trainer.returncode == 0
        assert len(arenas_of(places)) == 1  # it holds what has not been read
        assert [result.outcome for result in work(places, folder)] == [Outcome.WRITTEN]
        assert len(swept(places, [])) == 1
        trainer = start_trainer(folder, "pass\n", "wait")
        trainer.communicate(timeout=60)
        assert arenas_of(places) == []


def test_a_stopped_reader_never_makes_a_save_wait(saver: CheckpointSaver, places: Places) -> None:
    with lock_held(places):
        saver.save(content(1), time_step=1)
        saver.save(content(2), time_step=2)
        saver.save(content(3), time_step=3)  # returns, though the lock is held
    assert saver.ways == {"arena": 2, "blob": 1, "direct": 0}
