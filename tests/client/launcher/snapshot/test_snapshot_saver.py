"""Snapshots through the agent: a real one, and programs that are killed right behind a save."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from support.spooled import fill_spool

from rla_client.contract.agent.places import Places
from rla_client.contract.job.arena_layout import ARENA_FOLDER, spool_key
from rla_client.contract.job.snapshot_footer import read_footer
from rla_client.contract.spool.segments import stream_names
from rla_client.launcher import Snapshotter, wrap_experiment
from rla_client.launcher.outputs import current_outputs
from rla_client.launcher.pending_streams import await_end
from rla_client.launcher.snapshot.snapshot_pickle import Pieces
from rla_client.launcher.snapshot.snapshot_saver import SnapshotSaver

torch = pytest.importorskip("torch", reason="needs PyTorch")

KILLED = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from rla_client.launcher import Snapshotter, wrap_experiment
from rla_client.launcher.outputs import current_outputs

size, mode, pause = int(sys.argv[1]), sys.argv[2], sys.argv[3:]


@wrap_experiment(log_dir="run", archive_launch_repo=False)
def main(ctxt):
    shots = Snapshotter(ctxt.snapshot_dir, mode, 2 if "gap" in mode else 1)
    state = {"w": np.zeros(size), "small": np.zeros(7)}
    for itr in range(5):
        state["w"][:] = state["small"][:] = itr
        shots.save_itr_params(itr, {"itr": itr, "state": state}, {"rows": itr})
        saver = current_outputs().snapshot_saver(Path(ctxt.snapshot_dir))
        if saver._pool is not None:
            saver._pool.wait_prepared(10)
    print(saver.ways, flush=True)
    state["w"][:] = -1
    os.kill(os.getpid(), signal.SIGKILL)


main()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saver_of(folder: Path | str) -> SnapshotSaver | None:
    """What writes the snapshots of a folder, if that is no thread of this process."""
    outputs = current_outputs()
    assert outputs is not None
    return outputs.snapshot_saver(Path(folder))


def killed(size: int, mode: str) -> dict[str, int]:
    """Run the program; how its snapshots went."""
    Path("killed.py").write_text(KILLED)
    done = subprocess.run(
        [sys.executable, "killed.py", str(size), mode],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    found: dict[str, int] = eval(done.stdout.splitlines()[-1])
    return found


def check(name: str, itr: int, size: int) -> None:
    with open(Path("run", name), "rb") as file:
        saved = cloudpickle.load(file)
    assert saved["itr"] == itr
    assert saved["state"]["w"].tolist() == [float(itr)] * size
    assert saved["state"]["small"].tolist() == [float(itr)] * 7


@pytest.mark.slow
@pytest.mark.parametrize(("size", "ways"), [(10, {"frame"}), (300_000, {"blob", "arena"})])
def test_a_save_that_returned_survives_sigkill(agent: Any, size: int, ways: set[str]) -> None:
    found = killed(size, "gap_and_last")
    assert {way for way, count in found.items() if count} == ways
    await_end("run")
    for itr in (0, 2, 4):
        check(f"itr_{itr}.pkl", itr, size)
    check("params.pkl", 4, size)
    assert not any(name.startswith(("itr_1", "itr_3", ".rla-tmp")) for name in os.listdir("run"))
    assert stream_names(agent.places.spool) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 300_000])
def test_an_agent_that_is_killed_meanwhile_writes_them_later(agent: Any, size: int) -> None:
    agent.send_signal(signal.SIGSTOP)  # it holds its lock, so it counts as alive
    assert sum(killed(size, "last").values()) == 5
    assert not Path("run", "params.pkl").exists()
    agent.restart()
    await_end("run")
    check("params.pkl", 4, size)


@pytest.mark.slow
def test_load_gives_what_the_agent_has_yet_to_write(agent: Any) -> None:
    @wrap_experiment(log_dir="late", archive_launch_repo=False)
    def experiment(ctxt: Any, size: int) -> None:
        shots = Snapshotter(ctxt.snapshot_dir, "all", 1)
        shots.save_itr_params(0, {"w": np.zeros(size)})
        assert shots.wait(60)
        agent.send_signal(signal.SIGSTOP)
        weights = np.ones(size)
        shots.save_itr_params(1, {"w": weights})
        weights[:] = 2
        assert not shots.wait(0.05)
        patch = pytest.MonkeyPatch()
        patch.setattr("rla_client.launcher.snapshot.snapshotter.AGENT_WAIT_S", 0.05)
        assert shots.load()["w"].tolist() == shots.load(itr=1)["w"].tolist() == [1.0] * size
        with pytest.raises(FileNotFoundError):
            shots.load(itr=2)
        assert shots.load(itr="first")["w"].tolist() == [0.0] * size
        agent.send_signal(signal.SIGCONT)
        patch.undo()

    for size in (10, 100_000):
        experiment({"log_dir": f"late{size}"}, size=size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 300_000])
def test_another_process_waits_for_what_the_agent_has_yet_to_write(agent: Any, size: int) -> None:
    program = (
        "from rla_client.launcher import Snapshotter\n"
        "print('loading', flush=True)\n"
        "print(Snapshotter().load('shared')['w'][0])"
    )

    @wrap_experiment(log_dir="shared", archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        shots = Snapshotter(ctxt.snapshot_dir)
        shots.save_itr_params(0, {"w": np.zeros(size)})
        assert shots.wait(60)
        agent.send_signal(signal.SIGSTOP)
        shots.save_itr_params(1, {"w": np.ones(size)})
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as reader:
            try:
                assert reader.stdout is not None
                assert reader.stdout.readline() == "loading\n"
                with pytest.raises(subprocess.TimeoutExpired):
                    reader.wait(0.5)
            finally:
                agent.send_signal(signal.SIGCONT)
            assert reader.stdout.read() == "1.0\n"

    experiment()


@pytest.mark.slow
def test_without_an_agent_the_thread_writes_and_what_comes_later_wins(
    agent: Any, wait_until: Callable[..., Any]
) -> None:
    assert agent.command("stop").returncode == 0  # until `start`, none is started by itself
    wait_until(lambda: not agent.alive, what="the agent's end")

    @wrap_experiment(log_dir="alone", archive_launch_repo=False)
    def experiment(ctxt: Any) -> Any:
        shots = Snapshotter(ctxt.snapshot_dir, "last", 1)
        shots.save_itr_params(0, {"itr": 0})
        assert shots.wait(60)
        assert shots.load()["itr"] == 0
        saver = saver_of(ctxt.snapshot_dir)
        assert saver is not None
        used = [saver.used]
        agent.start()
        shots.save_itr_params(1, {"itr": 1})
        used.append(saver.used)
        assert used == [False, True]
        assert shots.load()["itr"] == 1

    experiment()
    assert read_footer("alone/params.pkl")["itr"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_full_spool_leaves_it_to_the_thread(agent: Any, size: int) -> None:
    """Also when the agent comes back to older ones that wait in the spool."""

    @wrap_experiment(log_dir="full", archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        shots = Snapshotter(ctxt.snapshot_dir, "last", 1)
        shots.save_itr_params(0, {"w": np.zeros(size)})
        assert shots.wait(60)
        saver = saver_of(ctxt.snapshot_dir)
        assert saver is not None
        outbox = saver._outbox
        agent.send_signal(signal.SIGSTOP)
        shots.save_itr_params(1, {"w": np.ones(size)})
        ballast = fill_spool(outbox)
        patch = pytest.MonkeyPatch()
        patch.setattr("rla_client.launcher.snapshot.snapshotter.AGENT_WAIT_S", 0.05)
        shots.save_itr_params(2, {"w": np.full(size, 2.0)})
        shots.wait(60)
        assert read_footer(Path(ctxt.snapshot_dir, "params.pkl"))["itr"] == 2
        ballast.unlink()
        agent.send_signal(signal.SIGCONT)
        patch.undo()

    experiment()
    assert read_footer("full/params.pkl")["itr"] == 2
    with open("full/params.pkl", "rb") as file:
        assert cloudpickle.load(file)["w"].tolist() == [2.0] * size


@pytest.mark.slow
def test_an_agent_that_sees_no_shared_memory_of_ours_gets_blobs(agent: Any, places: Places) -> None:
    @wrap_experiment(log_dir="apart", archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        shots = Snapshotter(ctxt.snapshot_dir, "last", 1)
        saver = saver_of(ctxt.snapshot_dir)
        assert saver is not None
        for itr in range(3):
            shots.save_itr_params(itr, {"w": np.full(100_000, float(itr))})
            assert saver._pool is not None
            saver._pool.wait_prepared(10)
            if itr == 0:
                lock = json.loads(places.lock.read_text())
                places.lock.write_text(json.dumps({**lock, "shm": lock["shm"] + 1}))
        assert saver.ways == {"frame": 0, "arena": 0, "blob": 3}
        assert shots.load()["w"].tolist() == [2.0] * 100_000

    experiment()


@pytest.mark.slow
def test_snapshots_elsewhere_do_not_go_through_the_agent(agent: Any, tmp_path: Path) -> None:
    @wrap_experiment(log_dir="here", archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        here, elsewhere = (Snapshotter(place) for place in (ctxt.snapshot_dir, tmp_path / "elsewhere"))
        for itr in range(3):
            for shots in (here, elsewhere):
                shots.save_itr_params(itr, {"itr": itr})
        assert saver_of(tmp_path / "elsewhere") is None
        saver = saver_of(ctxt.snapshot_dir)
        assert saver is not None
        assert saver.ways["frame"] == 3
        assert here.load()["itr"] == elsewhere.load()["itr"] == 2

    experiment()


def test_a_normal_exit_leaves_the_snapshot(tmp_path: Path) -> None:
    program = (
        "import numpy as np; from rla_client.launcher import Snapshotter; "
        f"Snapshotter({str(tmp_path / 'shots')!r}).save_itr_params(3, {{'w': np.ones(3_000_000)}})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert Snapshotter().load(tmp_path / "shots")["w"].sum() == 3_000_000


@pytest.mark.slow
def test_no_shared_memory_is_left(agent: Any, wait_until: Callable[..., Any]) -> None:
    own = f"-{spool_key(agent.places.spool)}-"  # other tests have theirs

    def arenas() -> list[str]:
        return [name for name in os.listdir(ARENA_FOLDER) if own in name]

    killed(300_000, "last")
    await_end("run")
    wait_until(lambda: not arenas(), what="removal of the killed process's arena")


def test_a_gpu_storage_is_named_and_not_read() -> None:
    storage = torch.arange(100_000, dtype=torch.float32).untyped_storage()
    pieces = Pieces()
    stand_in: Any = pieces.stand_in(storage)
    assert pieces.write(stand_in) == storage.nbytes()
    pieces.write(b"small")
    pieces.finish()
    assert pieces.on_device
    assert pieces._large == [(0, (0, storage.nbytes(), storage))]
    assert pieces.size == storage.nbytes() + 5
