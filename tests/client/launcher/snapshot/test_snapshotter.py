from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from support.forked import in_forked_child

from rla_client.contract.errors import ArgumentError, NotAFileError, SnapshotError, UntrustedCheckpointError
from rla_client.contract.item.foreign_mark import mark_foreign
from rla_client.contract.job.snapshot_footer import read_footer
from rla_client.contract.layout import FETCHED_MARK, FOREIGN_MARK
from rla_client.launcher.snapshot.snapshot_pickle import decode, encode
from rla_client.launcher.snapshot.snapshotter import Snapshotter

torch = pytest.importorskip("torch", reason="needs PyTorch")


def test_round_trip_and_footer(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path / "shots", "gap_and_last", 2)
    for itr in range(5):
        shots.save_itr_params(itr, {"itr": itr, "w": np.full(3, itr)}, {"rows": itr + 1})
    assert shots.wait(60)
    assert sorted(os.listdir(tmp_path / "shots")) == ["itr_0.pkl", "itr_2.pkl", "itr_4.pkl", "params.pkl"]
    assert shots.load()["itr"] == 4
    assert shots.load(itr="first")["itr"] == 0
    assert shots.load(tmp_path / "shots", "2")["w"].tolist() == [2, 2, 2]
    footer = read_footer(tmp_path / "shots" / "itr_2.pkl")
    assert (footer["itr"], footer["rows"]) == (2, 3)
    assert footer["order"] < read_footer(tmp_path / "shots" / "params.pkl")["order"]
    with open(tmp_path / "shots" / "itr_2.pkl", "rb") as file:
        assert cloudpickle.load(file)["itr"] == 2  # a plain cloudpickle file for everybody else


def test_the_state_is_that_of_the_call(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path, "last", 1)
    weights, tensor = np.zeros(100_000), torch.zeros(100_000)
    shots.save_itr_params(0, {"w": weights, "t": tensor})
    weights += 1
    tensor += 1
    loaded = shots.load()
    assert loaded["w"].sum() == 0
    assert loaded["t"].sum() == 0


def test_last_of_more_than_ten_is_the_highest_number(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path, "all", 1)
    for itr in range(12):
        shots.save_itr_params(itr, {"itr": itr})
    assert shots.load()["itr"] == 11


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    shots = Snapshotter("shots")
    shots.save_itr_params(0, {"itr": 0})
    monkeypatch.chdir("other")
    shots.save_itr_params(1, {"itr": 1})
    assert shots.load() == {"itr": 1}
    assert os.listdir(tmp_path / "shots") == ["params.pkl"]
    assert os.listdir() == []
    assert shots.snapshot_dir == "shots"


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    two: Any = np.int64(2)
    shots = Snapshotter(tmp_path, "gap", two)
    shots.save_itr_params(two, {"itr": 2})
    assert shots.load(itr=two) == {"itr": 2}
    assert type(shots.snapshot_gap) is int
    for wrong in (1.5, -1, "1", True):
        with pytest.raises(ArgumentError):
            shots.save_itr_params(wrong, {})  # type: ignore[arg-type]


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path, "all", 1)
    with pytest.raises(FileNotFoundError):
        shots.load()
    with pytest.raises(FileNotFoundError):
        shots.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        shots.load(itr=3)
    (tmp_path / "itr_3.pkl").mkdir()
    with pytest.raises(NotAFileError):
        shots.load(itr=3)
    itr: Any
    for itr in ("newest", -1, 1.5, True):
        with pytest.raises(ArgumentError):
            shots.load(itr=itr)
    (tmp_path / "itr_4.pkl").write_bytes(b"no pickle")
    with pytest.raises(SnapshotError):
        shots.load(itr=4)


def test_unpicklable_state_names_the_culprit_and_later_snapshots_work(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path, "last", 1)
    for _ in range(3):  # more often than there are buffers
        with pytest.raises(SnapshotError, match="algo"):
            shots.save_itr_params(0, {"env": 1, "algo": threading.Lock()})
    shots.save_itr_params(1, {"algo": 5})
    assert shots.load() == {"algo": 5}


def test_a_disk_that_refuses_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    shots = Snapshotter(tmp_path / "file" / "shots", "last", 1)
    for itr in range(5):
        shots.save_itr_params(itr, {"itr": itr})
    assert shots.wait(60)
    assert "was not written" in caplog.text


def test_tensors_share_what_they_shared_and_optimizers_keep_their_parameters() -> None:
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(4)).sum().backward()
    optimizer.step()
    base = torch.arange(12.0)
    state = {
        "net": net,
        "optimizer": optimizer,
        "base": base,
        "view": base[2:8].view(2, 3),
        "transposed": torch.arange(6).view(2, 3).T,
        "empty": torch.empty(0, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(3),
        "grad": torch.ones(2, requires_grad=True),
    }
    loaded = decode(encode(state).to_bytes())
    loaded["base"][2] = -1
    assert loaded["view"][0, 0] == -1
    assert loaded["transposed"].equal(state["transposed"])
    assert loaded["transposed"].stride() == state["transposed"].stride()
    assert loaded["empty"].shape == (0, 3)
    assert loaded["half"].equal(state["half"])
    assert loaded["bool"].tolist() == [True, False]
    assert loaded["scalar"].item() == 3
    assert loaded["grad"].requires_grad
    assert loaded["optimizer"].param_groups[0]["params"][0] is next(loaded["net"].parameters())
    assert all(a.equal(b) for a, b in zip(net.parameters(), loaded["net"].parameters(), strict=True))


def test_nothing_is_visible_before_it_is_whole(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path, "last", 1)
    seen = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                with open(tmp_path / "params.pkl", "rb") as file:
                    seen.append(len(cloudpickle.load(file)["w"]))
            except FileNotFoundError:
                continue

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        shots.save_itr_params(0, {"w": np.zeros(200_000)})
    shots.wait(60)
    stop.set()
    reader.join()
    assert set(seen) <= {200_000}
    assert os.listdir(tmp_path) == ["params.pkl"]


def test_without_threads_the_caller_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no more, or the interpreter is going down (Python 3.12 then starts none)."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    shots = Snapshotter(tmp_path, "all", 1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for itr in range(3):
        shots.save_itr_params(itr, {"itr": itr})
    assert shots.wait(0)
    monkeypatch.undo()
    shots.save_itr_params(3, {"itr": 3})
    assert shots.wait(60)
    assert [shots.load(itr=itr)["itr"] for itr in range(4)] == [0, 1, 2, 3]


def test_last_of_a_copied_folder_goes_by_what_the_files_say(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path / "shots", "gap_and_last", 5)
    for itr in range(8):
        shots.save_itr_params(itr, {"itr": itr})
    assert shots.wait(60)
    numbered, last = tmp_path / "shots" / "itr_5.pkl", tmp_path / "shots" / "params.pkl"
    os.utime(last, (1, 1))  # as a copy leaves it that came to params.pkl first
    assert shots.load()["itr"] == 7
    numbered.write_bytes(cloudpickle.dumps({"itr": "garage's own"}))  # without a footer: the time counts
    assert shots.load()["itr"] == "garage's own"
    os.utime(numbered, (0, 0))
    assert shots.load()["itr"] == 7


@pytest.mark.parametrize("spoil", ["file", "folder", "above", "mark", "foreign", "owner"])
def test_a_snapshot_that_others_could_have_written_is_loaded_on_the_users_word(
    tmp_path: Path, spoil: str
) -> None:
    folder = tmp_path / "above" / "shots"
    shots = Snapshotter(folder, "all", 1)
    shots.save_itr_params(0, {"itr": 0})
    assert shots.load()["itr"] == 0
    if spoil == "file":
        (folder / "itr_0.pkl").chmod(0o646)
    elif spoil == "folder":
        folder.chmod(0o757)
    elif spoil == "above":
        folder.parent.chmod(0o757)
    elif spoil == "mark":
        (folder / FETCHED_MARK).touch()
    elif spoil == "foreign":
        mark_foreign(folder.parent)
    elif os.geteuid() == 0:
        os.chown(folder / "itr_0.pkl", 12345, -1)
    else:
        pytest.skip("only root can give files away")
    for load in (shots.load, Snapshotter(tmp_path / "other").load):
        with pytest.raises(UntrustedCheckpointError, match=r"itr_0.pkl is not loaded.*trust=True"):
            load(folder, 0)
    assert Snapshotter(tmp_path / "other").load(folder, 0, trust=True)["itr"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_mark_in_a_folder_above_says_nothing(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path / "shots", "all", 1)
    shots.save_itr_params(0, {"itr": 0})
    (tmp_path / FOREIGN_MARK).mkdir()
    os.chown(tmp_path / FOREIGN_MARK, 12345, -1)
    assert shots.load()["itr"] == 0


def test_a_link_to_what_others_may_write_is_not_ones_own(tmp_path: Path) -> None:
    shots = Snapshotter(tmp_path / "shots", "all", 1)
    shots.save_itr_params(0, {"itr": 0})
    assert shots.wait(60)
    (tmp_path / "link").symlink_to(tmp_path / "shots")
    assert shots.load(tmp_path / "link", 0)["itr"] == 0
    (tmp_path / "shots").chmod(0o757)
    with pytest.raises(UntrustedCheckpointError):
        shots.load(tmp_path / "link", 0)


@pytest.mark.parametrize("mode", ["none", "last"])
def test_the_folder_is_there_from_the_start(tmp_path: Path, mode: str) -> None:
    Snapshotter(tmp_path / "a" / "b", mode)
    assert (tmp_path / "a" / "b").is_dir()


def test_a_second_snapshotter_of_the_folder_sees_each_save(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    first, second = Snapshotter(tmp_path, "all"), Snapshotter(tmp_path / "link")
    for number in range(10):
        first.save_itr_params(number, {"n": number, "ballast": b"x" * 3_000_000})
        assert second.load()["n"] == number
        assert Snapshotter(tmp_path / "elsewhere").load(tmp_path)["n"] == number


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The thread writes a snapshot when it gets a byte through this pipe."""
    there, here = os.pipe()
    write = Snapshotter._write

    def when_told(self: Snapshotter, order: Any) -> None:
        os.read(there, 1)
        write(self, order)

    monkeypatch.setattr(Snapshotter, "_write", when_told)
    yield here
    os.close(here)
    os.close(there)


def test_another_process_sees_each_save_that_has_returned(tmp_path: Path, held: int) -> None:
    shots = Snapshotter(tmp_path)
    for itr in range(2):
        os.write(held, b"x" * (1 - itr))
        shots.save_itr_params(itr, {"itr": itr})
        assert shots.wait(60 * (1 - itr)) is (itr == 0)

    def reads() -> bool:
        assert not shots.wait(0.05)
        pause = time.sleep

        def release(seconds: float) -> None:  # it waits: the other may write
            os.write(held, b"x")
            pause(seconds)

        time.sleep = release  # type: ignore[assignment]
        return bool(shots.load() == {"itr": 1})

    try:
        assert in_forked_child(reads)
    finally:
        os.write(held, b"x")
        assert shots.wait(60)
    assert os.listdir(tmp_path) == ["params.pkl"]


def test_what_a_process_did_not_write_before_it_ended_is_told(
    tmp_path: Path, held: int, caplog: pytest.LogCaptureFixture
) -> None:
    shots = Snapshotter(tmp_path)
    os.write(held, b"x")
    shots.save_itr_params(0, {"itr": 0})
    assert shots.wait(60)

    def saves() -> bool:
        shots.save_itr_params(1, {"itr": 1})
        return True

    assert in_forked_child(saves)
    assert os.listdir(tmp_path) == ["params.pkl"]
    for _ in range(2):
        assert shots.load() == {"itr": 0}
    assert caplog.text.count("ended before it was written") == 1
    assert os.listdir(tmp_path) == ["params.pkl"]
