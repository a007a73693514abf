"""The saver on a real spool: its three ways, short memory, what is kept. The agent's part runs here."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import pickle
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.contract.checkpoints import FETCHED_MARK

torch = pytest.importorskip("torch")

from support.checkpoint_lab import (  # noqa: E402
    arenas_of,
    assert_is,
    content,
    jobs_of,
    lock_held,
    work,
)
from support.spooled import fill_spool  # noqa: E402
from support.stamped import stamped  # noqa: E402

from rla_agent.pipeline.checkpoint_jobs import Outcome  # noqa: E402
from rla_client.checkpoint import saver as checkpoint_module  # noqa: E402
from rla_client.checkpoint import saver as fallback_module  # noqa: E402
from rla_client.checkpoint.files import find_checkpoint, list_checkpoints, load_file  # noqa: E402
from rla_client.checkpoint.saver import CheckpointSaver  # noqa: E402
from rla_client.contract.checkpoints import newest_order  # noqa: E402
from rla_client.contract.errors import (  # noqa: E402
    ArgumentError,
    BrokenFileError,
    NoCheckpointError,
    UntrustedCheckpointError,
)
from rla_client.contract.paths import Places  # noqa: E402
from rla_client.stream import arena as arena_module  # noqa: E402
from rla_client.stream.outbox import Outbox  # noqa: E402


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


def test_without_an_agent_it_goes_to_the_spool_as_a_file(
    saver: CheckpointSaver, places: Places, folder: Path
) -> None:
    saver.save(content(1), time_step=1)
    assert saver.ways["blob"] == 1
    (job, blobs) = jobs_of(places)[0]
    assert [blob.name for blob in blobs.iterdir()] == [f"{job.stamp.token}.raw"]
    assert_is(saver.load()[1], 1)
    assert [result.outcome for result in work(places, folder)] == [Outcome.WRITTEN]
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
    assert [result.outcome for result in work(places, folder)] == [Outcome.WRITTEN]
    late = load_file(folder / "checkpoint_1.pt", trust=True)
    assert repr(early) == repr(late) == repr(state)


def test_a_file_that_is_half_written_is_removed(
    saver: CheckpointSaver, outbox: Outbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise error

    assert outbox.blobs_folder is not None
    monkeypatch.setattr(checkpoint_module, "_write_storage", fail)
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
        found = late(name, index)
        work(places, folder)
        return found

    saver.save(content(1), time_step=1)
    late = saver._late
    monkeypatch.setattr(saver, "_late", taken_now)
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
    assert [result.outcome for result in work(places, folder)] == [Outcome.LOST]
    assert list(folder.iterdir()) == []


def test_an_agent_of_before_gets_no_raw_blob(saver: CheckpointSaver, places: Places, folder: Path) -> None:
    large = {"w": torch.rand(6_000_000)}
    with lock_held(places):
        places.lock.write_text('{"pid": 1, "protocol": 1}')
        saver.save(large, time_step=1)
        assert saver.ways == {"arena": 0, "blob": 0, "direct": 1}
        places.lock.write_text('{"pid": 1, "protocol": 1, "raw_blobs": true}')
        saver.save(large, "other", time_step=2)
        assert saver.ways["blob"] + saver.ways["arena"] == 1
    places.lock.write_text('{"pid": 1, "protocol": 1}')  # it is gone
    saver.save(large, time_step=3)
    assert saver.ways["direct"] == 1
    assert torch.equal(load_file(folder / "checkpoint_1.pt")["w"], large["w"])


@pytest.mark.parametrize("limit", ["MAX_STORAGES", "MAX_SKELETON_BYTES"])
def test_what_no_job_may_name_is_written_here(
    saver: CheckpointSaver, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(checkpoint_module, limit, 3)
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


@pytest.mark.parametrize("trust", [False, True])
def test_what_is_no_whole_checkpoint_is_named(tmp_path: Path, trust: bool) -> None:
    path = tmp_path / "checkpoint_1.pt"
    torch.save({"w": torch.ones(1000)}, path)
    whole = path.read_bytes()
    cuts = [whole[:end] for end in (0, 1, 300, len(whole) - 30, len(whole) - 10)]
    others = [
        b"version https://git-lfs.github.com/spec/v1\n",
        b"<html>",
        b"hello",
        bytes(5000),
        b"PK\5\6" + bytes(18),
    ]
    for damaged in cuts + others:
        path.write_bytes(damaged)
        with pytest.raises(BrokenFileError, match=r"checkpoint_1\.pt cannot be read: it is no checkpoint"):
            load_file(path, trust=trust)
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    assert load_file(path)["w"].sum() == 3


def _others_may_write(path: Path) -> None:
    path.chmod(0o666)


def _folder_is_open(path: Path) -> None:
    path.parent.chmod(0o777)


def _is_marked(path: Path) -> None:
    (path.parent / FETCHED_MARK).touch()


def _is_anothers(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize("spoil", [_others_may_write, _folder_is_open, _is_marked, _is_anothers])
def test_what_others_could_have_written_is_not_the_runs_own(
    saver: CheckpointSaver, places: Places, folder: Path, spoil: Callable[[Path], None]
) -> None:
    with lock_held(places):
        saver.save({"model": torch.nn.Linear(2, 2)}, "object", 1)
        saver.save({"w": torch.ones(3)}, "plain", 1)
        work(places, folder)
    assert isinstance(saver.load("object")[1]["model"], torch.nn.Linear)
    for name in ("object", "plain"):
        spoil(folder / f"{name}_1.pt")
    with pytest.raises(UntrustedCheckpointError, match=r"Linear.*trust=True"):
        saver.load("object")
    assert isinstance(saver.load("object", trust=True)[1]["model"], torch.nn.Linear)
    assert torch.equal(saver.load("plain")[1]["w"], torch.ones(3)), "tensors need no trust"


def test_plain_data_of_any_kind_needs_no_trust(tmp_path: Path) -> None:
    content = {
        "random": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - as users have it
        "generator": np.random.default_rng(1).bit_generator.state,
        "torch": torch.get_rng_state(),
        "scalars": [np.float64(1.5), np.int32(3), np.bool_(1), 1 + 2j, Decimal("1.5")],
        "arrays": [np.ones(3, ">f4"), np.array(["a"]), np.zeros(2, "M8[ns]")],
        "sets": [{1, 2}, frozenset([3]), range(3), slice(1, 2), b"bytes", bytearray(b"x")],
        "ordered": OrderedDict(a=1),
        "kinds": [torch.float16, torch.device("cpu"), torch.Size([2, 3])],
        "arguments": argparse.Namespace(lr=0.1, path=Path("x"), layers=(1, 2)),
        "when": [dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc), dt.timedelta(1)],
    }
    torch.save(content, tmp_path / "x_1.pt")
    loaded = load_file(tmp_path / "x_1.pt")
    assert loaded["arguments"] == content["arguments"]
    assert loaded["scalars"] == content["scalars"]
    assert loaded["when"] == content["when"]
    random.setstate(loaded["random"])


def test_both_spellings_are_found_newest_by_number(saver: CheckpointSaver, folder: Path) -> None:
    for name in ("checkpoint-9.pt", "checkpoint_10.pt", "checkpoint_9.pt", "other_99.pt", "checkpoint_x.pt"):
        torch.save({"file": name}, folder / name)
    assert [step for step, _ in list_checkpoints(folder)] == [9, 10]
    assert saver.load() == (10, {"file": "checkpoint_10.pt"})
    assert saver.load(index=9) == (9, {"file": "checkpoint_9.pt"})
    with pytest.raises(NoCheckpointError, match="9, 10"):
        find_checkpoint(folder, index=7)


def test_the_newest_is_the_one_that_was_saved_last(outbox: Outbox, places: Places, folder: Path) -> None:
    """Time-steps begin again with each stage of a curriculum."""
    saver = CheckpointSaver(outbox, folder)
    for stage in (1, 2):
        for step in (10, 20, 30) if stage == 1 else (10, 20):
            saver.save({"stage": stage, "step": step}, time_step=step)
            assert saver.load() == (step, {"stage": stage, "step": step}), "before its file is there"
            work(places, folder)
            assert saver.load() == (step, {"stage": stage, "step": step})
    assert [step for step, _ in list_checkpoints(folder)] == [30, 10, 20]
    assert find_checkpoint(folder)[0] == 20
    assert saver.load(index=30) == (30, {"stage": 1, "step": 30})
    saver.close()


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
