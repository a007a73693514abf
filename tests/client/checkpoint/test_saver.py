"""The saver on a real spool: its three ways, short memory, what is kept. The agent's part runs here."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoint_lab import arenas_of, assert_is, content, jobs_of, lock_held, swept, work
from support.forked import in_forked_child
from support.spooled import fill_spool
from support.stamped import stamped

from rla_agent.jobs.job_source import release
from rla_agent.jobs.outcome import JobOutcome
from rla_client.checkpoint import blob_file as blob_file_module
from rla_client.checkpoint import saver as saver_module
from rla_client.checkpoint.listing import list_checkpoints
from rla_client.checkpoint.loading import load_file
from rla_client.checkpoint.saver import CheckpointSaver
from rla_client.contract.agent.places import Places
from rla_client.contract.checkpoint.checkpoint_age import newest_order
from rla_client.contract.errors import ArgumentError, NoCheckpointError, UntrustedCheckpointError
from rla_client.contract.spool.segments import stream_names
from rla_client.stream import arena as arena_module
from rla_client.stream.outbox import Outbox

torch = pytest.importorskip("torch")


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
        assert [result.outcome for result in work(places, folder)] == [JobOutcome.WRITTEN]
    assert [path.name for path in folder.iterdir()] == ["checkpoint_3.pt"]
    assert_is(torch.load(folder / "checkpoint_3.pt", weights_only=True), 3)
    assert_is(torch.load(folder / "checkpoint_3.pt", weights_only=True, mmap=True), 3)
    assert_is(saver.load()[1], 3)


def test_without_an_agent_it_goes_to_the_spool_as_a_file(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    saver.save(content(1), time_step=1)
    assert saver.ways["blob"] == 1
    (job, blobs) = jobs_of(places)[0]
    assert [blob.name for blob in blobs.iterdir()] == [f"{job.stamp.token}.raw"]
    assert_is(saver.load()[1], 1)
    assert [result.outcome for result in work(places, folder)] == [JobOutcome.WRITTEN]
    assert list(blobs.iterdir()) == []
    assert_is(saver.load("checkpoint", 1)[1], 1)


@pytest.mark.parametrize(
    "state",
    [
        {"empty": torch.empty(0), "none": None, "odd": torch.arange(7, dtype=torch.int8)},
        {"bits": torch.tensor([True, False]), "array": np.arange(5.0), "deep": [{"x": torch.ones(3, 3).T}]},
        {},
    ],
)
def test_a_file_in_the_spool_holds_any_content(
    saver: CheckpointSaver, places: Places, folder: Path, state: dict[str, Any]
) -> None:
    saver.save(state, time_step=1)
    assert saver.ways["blob"] == 1
    early = saver.load()[1]
    assert [result.outcome for result in work(places, folder)] == [JobOutcome.WRITTEN]
    late = load_file(folder / "checkpoint_1.pt", trust=True)
    assert repr(early) == repr(late) == repr(state)


def test_a_file_that_is_half_written_is_removed(
    saver: CheckpointSaver, outbox: Outbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise error

    assert outbox.blobs_folder is not None
    monkeypatch.setattr(blob_file_module, "_write_storage", fail)
    error: BaseException = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        saver.save(content(1), time_step=1)
    assert list(outbox.blobs_folder.iterdir()) == []
    error = OSError(28, "No space left on device")
    saver.save(content(1), time_step=1)
    assert list(outbox.blobs_folder.iterdir()) == []
    assert saver.ways == {"arena": 0, "blob": 0, "direct": 1}
    assert_is(load_file(folder / "checkpoint_1.pt"), 1)


def test_load_goes_on_when_the_agent_takes_the_blob_meanwhile(
    saver: CheckpointSaver, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_now(name: str, index: int | None) -> Any:
        found = unwritten(name, index)
        work(places, folder)
        return found

    saver.save(content(1), time_step=1)
    unwritten = saver._unwritten
    monkeypatch.setattr(saver, "_unwritten", taken_now)
    assert_is(saver.load()[1], 1)


@pytest.mark.parametrize("left", [0, 10, 100_000])
def test_a_blob_that_somebody_cut_is_no_checkpoint(
    saver: CheckpointSaver, places: Places, folder: Path, left: int
) -> None:
    saver.save(content(1), time_step=1)
    (_, blobs) = jobs_of(places)[0]
    os.truncate(next(blobs.iterdir()), left)
    with pytest.raises(NoCheckpointError):
        saver.load()
    assert [result.outcome for result in work(places, folder)] == [JobOutcome.LOST]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("limit", ["MAX_STORAGES", "MAX_SKELETON_BYTES"])
def test_what_no_job_may_name_is_written_here(
    saver: CheckpointSaver, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(saver_module, limit, 3)
    saver.save(content(1), time_step=1)
    with lock_held(places):
        saver.save(content(2), time_step=2)
    assert saver.ways == {"arena": 0, "blob": 0, "direct": 2}
    assert_is(load_file(folder / "checkpoint_2.pt"), 2)


def test_ten_saves_faster_than_the_agent(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    with lock_held(places):
        for step in range(10):
            saver.save(content(step), time_step=step)
            assert_is(saver.load()[1], step)
        assert saver.ways["arena"] == 2
        assert saver.ways["blob"] == 8
        assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
        assert [step for step, _ in list_checkpoints(folder)] == [8, 9]
        saver.save(content(10), time_step=10)
        assert saver.ways["arena"] == 3  # the slots are free again
        assert work(places, folder)[-1].outcome is JobOutcome.WRITTEN
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
        assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
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
    monkeypatch.setattr(saver_module, "BACKLOG_MAX_BYTES", 1)
    for step in range(4):
        saver.save(content(step), time_step=step)
    assert saver.ways == {"arena": 0, "blob": 1, "direct": 3}
    assert [step for step, _ in list_checkpoints(folder)] == [2, 3]  # max_to_keep holds here too
    assert_is(load_file(folder / "checkpoint_3.pt"), 3)


def test_a_full_spool_leaves_the_direct_way(
    saver: CheckpointSaver, outbox: Outbox, places: Places, folder: Path
) -> None:
    """Nobody would do the job that does not fit; the run's own disk has room."""
    ballast = fill_spool(outbox)
    with lock_held(places):
        saver.save(content(1), time_step=1)  # by an arena, were there room for its job
    saver.save(content(2), time_step=2)
    assert saver.ways == {"arena": 0, "blob": 0, "direct": 2}
    assert_is(load_file(folder / "checkpoint_1.pt"), 1)
    assert_is(saver.load()[1], 2)
    assert list(ballast.parent.glob("blobs/*")) == []
    assert saver._pool is not None
    assert saver._pool.current is not None
    assert saver._pool.current.idle


def test_a_full_disk_loses_the_checkpoint_and_says_so(
    saver: CheckpointSaver, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_file_module, "FREE_DISK_SHARE", 1.1)
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


@pytest.mark.slow
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
    with pytest.raises(UntrustedCheckpointError, match=r"object_1.*Sequential.*not written by this run"):
        load_file(folder / "object_1.pt", run="another")
    assert isinstance(load_file(folder / "object_1.pt", run="own")["model"], torch.nn.Sequential)
    assert isinstance(load_file(folder / "object_1.pt", trust=True)["model"], torch.nn.Sequential)


def test_saves_come_after_those_of_an_earlier_process_whose_clock_was_ahead(
    outbox: Outbox, places: Places, folder: Path
) -> None:
    stamped(folder, 50, time.time_ns() + 10**15)
    one = CheckpointSaver(outbox, folder)
    one.come_after(newest_order(folder))
    one.save({"n": 1}, time_step=5)
    assert one.load() == (5, {"n": 1})
    work(places, folder)
    assert one.load() == (5, {"n": 1})
    one.close()


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


def test_torch_alone_reads_what_it_can_hold_and_we_give_back_the_very_types(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    """formats.md: `torch.load(weights_only=True)` reads tensors, arrays, scalars and plain data."""
    shared = np.arange(6.0).reshape(2, 3)
    content = {
        "array": shared,
        "again": [shared],
        "fortran": np.asfortranarray(shared),
        "strided": shared[:, ::2],
        "empty": np.zeros((0, 3), np.int8),
        "single": np.array(2, np.int64),
        "unsigned": [np.array([1, 2**bits - 1], f"u{bits // 8}") for bits in (8, 16, 32, 64)],
        "scalars": (np.float32(1.5), np.int64(-3), np.bool_(True), np.complex64(1j), np.float64(0.1)),
        "many": [np.float16(number) for number in range(600)],
        "weights": OrderedDict(w=torch.ones(2), p=torch.nn.Parameter(torch.ones(2))),
        "plain": {"a": [1, 2.0, "x", None, (1,)], "s": {1, "x"}, 7: b"x", "b": bytearray(b"x"), "c": 1j},
    }
    keys = {
        np.int64(3): {np.float32(0.5), (np.int8(1), 2)},
        "names": np.array(["a", "b"]),
        "f": frozenset([1]),
    }
    saver.save(content, time_step=1)
    saver.save({**content, **keys}, time_step=2)
    late = saver.load(index=1)[1], saver.load(index=2)[1]
    work(places, folder)
    plain = torch.load(folder / "checkpoint_1.pt", weights_only=True)
    assert plain["array"].tolist() == shared.tolist()
    assert plain["array"].dtype == torch.float64
    assert plain["unsigned"][3].tolist() == [1, 2**64 - 1]
    assert [float(one.real) for one in plain["scalars"]] == [1.5, -3.0, 1.0, 0.0, 0.1]
    for number, loaded in (
        (1, late[0]),
        (2, late[1]),
        (1, saver.load(index=1)[1]),
        (2, saver.load(index=2)[1]),
    ):
        wanted: dict[Any, Any] = content if number == 1 else {**content, **keys}
        assert repr(loaded) == repr(wanted)
        assert loaded["again"][0] is loaded["array"]
        assert loaded["array"].flags.writeable
        for name in ("array", "fortran", "empty", "single"):
            assert (type(loaded[name]), loaded[name].dtype) == (np.ndarray, wanted[name].dtype)
            assert loaded[name].strides == wanted[name].strides
        assert [one.dtype for one in loaded["unsigned"]] == [one.dtype for one in wanted["unsigned"]]
        assert [type(one) for one in loaded["scalars"]] == [type(one) for one in wanted["scalars"]]
        assert {type(one) for one in loaded["many"]} == {np.float16}
        assert type(loaded["weights"]["p"]) is torch.nn.Parameter
    assert loaded[np.int64(3)] == keys[np.int64(3)]
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        torch.load(folder / "checkpoint_2.pt", weights_only=True)


def test_an_array_within_an_object_stays_one(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    arguments = argparse.Namespace(low=np.zeros(3), scale=np.float32(2))
    saver.save({"space": arguments, "low": arguments.low}, time_step=1)
    for _ in range(2):
        loaded = saver.load()[1]
        assert (type(loaded["space"].low), type(loaded["space"].scale)) == (np.ndarray, np.float32)
        assert loaded["low"] is loaded["space"].low
        work(places, folder)


def test_the_page_says_how_to_read_the_rest(
    saver: CheckpointSaver, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "names": np.array(["a", "b"]), "days": np.array(["2026-11-21"], "datetime64[D]"),
        "long": np.ones(2, np.longdouble), "swapped": np.arange(3, dtype=">f8"),
        np.int64(3): frozenset([np.float32(1)]), "path": Path("a/b"), "array": np.ones(2),
    }  # fmt: skip
    saver.save(content, time_step=100)
    work(places, folder)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    (block,) = [part for part in page.split("```python\n")[1:] if "safe_globals" in part]
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    exec(block.split("```")[0], found)
    assert found["content"]["names"].tolist() == ["a", "b"]
    assert found["content"][np.int64(3)] == frozenset([np.float32(1)])
    assert found["content"]["path"] == Path("a/b")
    assert repr(saver.load()[1]) == repr(pickle.loads(pickle.dumps(content, 2)))  # of a byte order, too


torch = pytest.importorskip("torch")
TRAINER = """
    import os, sys, torch
    from pathlib import Path
    from rla_client.checkpoint.saver import CheckpointSaver
    from rla_client.config.schema import AgentConfig
    from rla_client.contract.agent.places import find_places
    from rla_client.run.opening_frame import make_opening
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
            assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
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
        assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
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
        assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
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
        assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
    steps = [step for step, _ in list_checkpoints(folder)]
    assert steps[-1] in {told, told + 1}
    for step in steps:
        assert_is(load_file(folder / f"checkpoint_{step}.pt"), step)
    swept(places, [])
    wait_until(lambda: arenas_of(places) == [])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    "k", [pytest.param(k, marks=() if k % 4 == 3 else pytest.mark.further) for k in range(11, 20)]
)
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
    assert {result.outcome for result in work(places, folder)} == {JobOutcome.WRITTEN}
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
        assert [result.outcome for result in work(places, folder)] == [JobOutcome.WRITTEN]
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
