"""The saver on a real spool: its three ways, kills, forks, short memory. The agent's part runs here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rla_agent.sinks.checkpoint import (  # noqa: E402
    CheckpointResult,
    Outcome,
    release,
    retain,
    run_checkpoint,
    sweep_arenas,
)
from rla_client import arena as arena_module  # noqa: E402
from rla_client import checkpoint as checkpoint_module  # noqa: E402
from rla_client import checkpoint_fallback as fallback_module  # noqa: E402
from rla_client.checkpoint import CheckpointSaver  # noqa: E402
from rla_client.checkpoint_files import find_checkpoint, list_checkpoints, load_file  # noqa: E402
from rla_client.checkpoint_job import ARENA_FOLDER, JOB_KIND, CheckpointJob, spool_key  # noqa: E402
from rla_client.config import AgentConfig  # noqa: E402
from rla_client.errors import ArgumentError, NoCheckpointError, UntrustedCheckpointError  # noqa: E402
from rla_client.outbox import Outbox  # noqa: E402
from rla_client.places import Places  # noqa: E402
from rla_client.protocol import FrameKind, iter_frames, unpack  # noqa: E402
from rla_client.spool import segment_numbers, segment_path, stream_names  # noqa: E402

TRAINER = """
    import os, sys, torch
    from pathlib import Path
    from rla_client.checkpoint import CheckpointSaver
    from rla_client.config import AgentConfig
    from rla_client.outbox import Outbox
    from rla_client.places import find_places

    def content(step):
        generator = torch.Generator().manual_seed(step)
        return {"step": step, "w": [torch.rand(50_000, generator=generator) for _ in range(4)]}

    outbox = Outbox(find_places(), {"pid": os.getpid()}, AgentConfig(autostart=False))
    saver = CheckpointSaver(outbox, Path(sys.argv[1]), max_to_keep=2)
    if "wait" in sys.argv:
        assert saver._pool.wait_prepared(30)
"""


def content(step: int) -> dict[str, Any]:
    """The same as in TRAINER."""
    generator = torch.Generator().manual_seed(step)
    return {"step": step, "w": [torch.rand(50_000, generator=generator) for _ in range(4)]}


def assert_is(loaded: Any, step: int) -> None:
    wanted = content(step)
    assert loaded["step"] == step
    assert all(torch.equal(one, two) for one, two in zip(loaded["w"], wanted["w"], strict=True))


def jobs_of(places: Places) -> list[tuple[CheckpointJob, Path]]:
    """Every checkpoint job in a spool with its stream's blob folder, oldest first."""
    found = []
    for stream in stream_names(places.spool):
        folder = places.spool / stream
        for number in segment_numbers(folder):
            for frame in iter_frames(segment_path(folder, number).read_bytes()):
                if frame.kind == FrameKind.JOB:
                    kind, fields = unpack(frame.payload)
                    assert kind == JOB_KIND
                    found.append((CheckpointJob.decode(fields), folder / "blobs"))
    return found


def work(places: Places, folder: Path) -> list[CheckpointResult]:
    """What the agent does with each job, from the first one on."""
    results = []
    for job, blobs in jobs_of(places):
        result = run_checkpoint(job, blobs, folder / job.final_name)
        release(job, blobs)
        if result.durable:
            retain(job, folder)
        results.append(result)
    return results


def arenas_of(places: Places) -> list[str]:
    key = spool_key(places.spool)
    return [name for name in os.listdir(ARENA_FOLDER) if f"-{key}-" in name]


def swept(places: Places, live: list[str]) -> list[str]:
    """What a sweep takes of this test's; it may also take what other tests left behind."""
    before = arenas_of(places)
    taken = sweep_arenas(places.spool, live)
    return [name for name in before if name in taken]


@contextlib.contextmanager
def lock_held(places: Places) -> Iterator[None]:
    """The agent's lock, so that clients see one alive; its work is done by `work`."""
    descriptor = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    made.mkdir()
    return made


@pytest.fixture
def outbox(places: Places, wait_until: Callable[..., Any]) -> Iterator[Outbox]:
    made = Outbox(places, {"pid": os.getpid()}, AgentConfig(autostart=False))
    yield made
    made.close("finished", "")
    wait_until(lambda: not any(thread.name == "rla-blob-sync" for thread in threading.enumerate()), 30)


@pytest.fixture
def saver(outbox: Outbox, places: Places, folder: Path) -> Iterator[CheckpointSaver]:
    """With an arena of 16 MiB slots, as one has a moment after new_saver."""
    made = CheckpointSaver(outbox, folder, max_to_keep=2)
    assert made._pool is not None
    assert made._pool.wait_prepared(30)
    yield made
    made.close()
    for name in arenas_of(places):
        os.unlink(os.path.join(ARENA_FOLDER, name))


def test_save_returns_before_the_file_is_there_and_load_sees_it_at_once(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    with lock_held(places):
        tensors = content(3)
        saver.save(tensors, time_step=3)
        for tensor in tensors["w"]:
            tensor.zero_()  # what is saved is the moment of the call
        assert saver.ways == {"arena": 1, "blob": 0, "direct": 0}
        assert list(folder.iterdir()) == []
        step, loaded = saver.load()
        assert step == 3
        assert_is(loaded, 3)
        assert [result.outcome for result in work(places, folder)] == [Outcome.WRITTEN]
    assert [path.name for path in folder.iterdir()] == ["checkpoint_3.pt"]
    assert_is(torch.load(folder / "checkpoint_3.pt", weights_only=True), 3)
    assert_is(torch.load(folder / "checkpoint_3.pt", weights_only=True, mmap=True), 3)
    assert_is(saver.load()[1], 3)


def test_without_an_agent_it_goes_to_the_spool_as_a_file_of_torch(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    saver.save(content(1), time_step=1)
    assert saver.ways["blob"] == 1
    (job, blobs) = jobs_of(places)[0]
    assert_is(torch.load(blobs / job.source.blob, weights_only=True), 1)  # type: ignore[union-attr]
    assert_is(saver.load()[1], 1)
    assert [result.outcome for result in work(places, folder)] == [Outcome.WRITTEN]
    assert list(blobs.iterdir()) == []
    assert_is(saver.load("checkpoint", 1)[1], 1)


def test_ten_saves_faster_than_the_agent(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    with lock_held(places):
        for step in range(10):
            saver.save(content(step), time_step=step)
            assert_is(saver.load()[1], step)
        assert saver.ways["arena"] == 2
        assert saver.ways["blob"] == 8
        assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
        assert [step for step, _ in list_checkpoints(folder)] == [8, 9]
        saver.save(content(10), time_step=10)
        assert saver.ways["arena"] == 3  # the slots are free again
        assert work(places, folder)[-1].outcome is Outcome.WRITTEN
    assert_is(saver.load()[1], 10)
    assert [step for step, _ in list_checkpoints(folder)] == [9, 10]


def test_an_arena_too_small_is_replaced_in_the_background(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    large = {"w": torch.rand(6_000_000)}
    with lock_held(places):
        before = arenas_of(places)
        saver.save(content(1), time_step=1)  # still to be read from the small arena
        saver.save(large, time_step=2)
        assert saver.ways == {"arena": 1, "blob": 1, "direct": 0}
        assert saver._pool is not None
        assert saver._pool.wait_prepared(30)
        saver.save(large, time_step=3)
        assert saver.ways["arena"] == 2
        assert set(before) < set(arenas_of(places))
        assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
        saver.save(large, time_step=4)
        assert len(arenas_of(places)) == 1  # the small one went once it was read
        assert torch.equal(saver.load(index=3)[1]["w"], large["w"])


def test_short_memory_means_files_and_no_arena(
    outbox: Outbox, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_module, "memory_room", lambda: 1 << 20)
    short = CheckpointSaver(outbox, folder)
    assert short._pool is not None
    assert not short._pool.wait_prepared(10)
    with lock_held(places):
        short.save(content(1), time_step=1)
    assert short.ways["blob"] == 1
    assert arenas_of(places) == []
    short.close()


def test_a_spool_without_room_leaves_the_direct_way(
    saver: CheckpointSaver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "BACKLOG_MAX_BYTES", 1)
    for step in range(4):
        saver.save(content(step), time_step=step)
    assert saver.ways == {"arena": 0, "blob": 1, "direct": 3}
    assert [step for step, _ in list_checkpoints(folder)] == [2, 3]  # max_to_keep holds here too
    assert_is(load_file(folder / "checkpoint_3.pt"), 3)


def test_a_full_disk_loses_the_checkpoint_and_says_so(
    saver: CheckpointSaver, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback_module, "FREE_DISK_SHARE", 1.1)
    saver.save(content(1), time_step=1)
    saver.save(content(2), time_step=2)
    assert saver.lost == 2
    assert caplog.text.count("was not saved") == 1
    with pytest.raises(NoCheckpointError):
        saver.load()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "step"), [("", 1), ("a/b", 1), ("..", "x"), ("a\n", 1), (".hidden", 1), ("x" * 300, 1), (5, 1)]
)
def test_wrong_names_and_steps_raise_at_once(saver: CheckpointSaver, name: Any, step: Any) -> None:
    with pytest.raises(ArgumentError):
        saver.save({}, name, step)


def test_what_cannot_be_pickled_raises_and_frees_everything(saver: CheckpointSaver, places: Places) -> None:
    for alive in (True, False):
        with lock_held(places) if alive else contextlib.nullcontext(), pytest.raises(ArgumentError):
            saver.save({"f": lambda: 1}, time_step=1)
    shared = torch.rand(4)
    with lock_held(places), pytest.raises(ArgumentError, match="as different types"):
        saver.save([shared, shared.view(torch.int32)], time_step=1)
    assert saver._pool is not None
    assert saver._pool.current is not None
    assert saver._pool.current.idle
    assert jobs_of(places) == []


def test_other_objects_and_arrays_come_back(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(8, 3)).sum().backward()
    optimizer.step()
    state = {"m": model.state_dict(), "o": optimizer.state_dict(), "rng": np.random.default_rng(1).random(9)}
    with lock_held(places):
        saver.save(state, "plain", 1)
        saver.save({"model": model}, "object", 1)
        assert saver.ways["arena"] == 2
        assert isinstance(saver.load("object")[1]["model"], torch.nn.Sequential)
        work(places, folder)
    _, loaded = saver.load("plain")
    assert isinstance(loaded["rng"], np.ndarray)
    assert np.array_equal(loaded["rng"], state["rng"])
    assert loaded["m"]._metadata == state["m"]._metadata
    torch.optim.Adam(model.parameters()).load_state_dict(loaded["o"])
    assert all(torch.equal(loaded["m"][key], value) for key, value in state["m"].items())
    assert isinstance(saver.load("object")[1]["model"], torch.nn.Sequential)
    with pytest.raises(UntrustedCheckpointError, match="trust=True"):
        load_file(folder / "object_1.pt")


def test_both_spellings_are_found_newest_by_number(saver: CheckpointSaver, folder: Path) -> None:
    for name in ("checkpoint-9.pt", "checkpoint_10.pt", "checkpoint_9.pt", "other_99.pt", "checkpoint_x.pt"):
        torch.save({"file": name}, folder / name)
    assert [step for step, _ in list_checkpoints(folder)] == [9, 10]
    assert saver.load() == (10, {"file": "checkpoint_10.pt"})
    assert saver.load(index=9) == (9, {"file": "checkpoint_9.pt"})
    with pytest.raises(NoCheckpointError, match="9, 10"):
        find_checkpoint(folder, index=7)


def test_keep_best_and_keep_every(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    saver.keep_best("loss", "min", 1)
    saver.keep_every(4)
    losses = [9.0, float("nan"), 1.0, 5.0, 6.0, 7.0, 8.0]
    for step, loss in enumerate(losses, start=1):
        saver.save({"step": step}, time_step=step, metrics={"loss": loss})
    work(places, folder)
    assert [step for step, _ in list_checkpoints(folder)] == [2 + 1, 4, 6, 7]


def test_saving_twice_at_one_step_keeps_the_second(outbox: Outbox, places: Places, folder: Path) -> None:
    one = CheckpointSaver(outbox, folder, max_to_keep=1)
    one.save({"n": 1}, time_step=5)
    one.save({"n": 2}, time_step=5)
    work(places, folder)
    assert one.load() == (5, {"n": 2})
    work(places, folder)  # a replay of both changes nothing
    assert one.load() == (5, {"n": 2})
    one.close()


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
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                saver.save(content(2), time_step=2)
                saver.close()
                code = 0 if saver.ways["blob"] == 1 else 3
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(stream_names(places.spool)) == 2
        assert {result.outcome for result in work(places, folder)} == {Outcome.WRITTEN}
        saver.save(content(3), time_step=3)
        assert saver.ways["arena"] == 2
        work(places, folder)
    assert_is(load_file(folder / "checkpoint_2.pt"), 2)
    assert_is(load_file(folder / "checkpoint_3.pt"), 3)


def start_trainer(folder: Path, body: str, *arguments: str) -> subprocess.Popen[bytes]:
    code = textwrap.dedent(TRAINER) + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", code, str(folder), *arguments], stdout=subprocess.PIPE)


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
    wait_until(lambda: arenas_of(places) == [], 5)


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
        wait_until(lambda: swept(places, []) != [], 5)
    finally:
        os.kill(child, signal.SIGKILL)
        trainer.stdout.close()


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
        started = time.monotonic()
        saver.save(content(3), time_step=3)
        assert time.monotonic() - started < 5
    assert saver.ways == {"arena": 2, "blob": 1, "direct": 0}
