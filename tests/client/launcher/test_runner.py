# ruff: noqa: ARG002, NPY002, PLW0108
# (set_seed seeds the global generator; fixtures act; samplers that look at nothing)
from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import launchers
from environments import Counting, Drawing

from rla_client import logger as rla_logger
from rla_client.contract.errors import ArgumentError, NotSetupError, SnapshotError
from rla_client.launcher import (
    LocalRunner,
    LocalSampler,
    MultiprocessingSampler,
    SnapshotConfig,
    Snapshotter,
    Trainer,
    get_seed,
    set_seed,
    tabular,
    wrap_experiment,
)
from rla_client.launcher.pending_streams import await_end
from rla_client.launcher.snapshot.training_state import TrainArgs


class Algo:
    """Records what it sampled; its state is a number that depends on every draw."""

    max_path_length = 4

    def __init__(self, sampler_cls: Any = None, stop_after: Any = None) -> None:
        self.policy = Drawing()
        self.sampler_cls = sampler_cls
        self.stop_after = stop_after
        self.memory = 0.0
        self.seen: list[Any] = []

    def train(self, runner: Any) -> Any:
        for epoch in runner.step_epochs():
            runner.step_path = runner.obtain_samples(runner.step_itr)
            drawn = sum(float(path["observations"].sum()) for path in runner.step_path)
            acted = sum(float(path["agent_infos"]["u"].sum()) for path in runner.step_path)
            self.memory = self.memory / 2 + drawn + acted + np.random.rand()
            self.seen.append((epoch, runner.step_itr))
            self.drawn = [*getattr(self, "drawn", []), drawn]
            tabular.record("memory", self.memory)
            runner.step_itr += 1
            if epoch == self.stop_after:
                raise InterruptedError
        return self.memory


def runner_in(folder: Path, algo: Any, mode: str = "all", gap: Any = 1, **setup: Any) -> Any:
    runner = LocalRunner(SnapshotConfig(str(folder), mode, gap))
    runner.setup(algo, Counting(length=6), **setup)
    return runner


def test_before_setup(tmp_path: Path) -> None:
    runner = Trainer(SnapshotConfig(str(tmp_path / "nowhere"), "last", 1))
    for call in (
        lambda: runner.train(1),
        lambda: runner.save(0),
        lambda: runner.obtain_samples(0),
        lambda: runner.resume(),
        lambda: next(iter(runner.step_epochs())),
        lambda: runner.get_env_copy(),
    ):
        with pytest.raises(NotSetupError):
            call()
    with pytest.raises(ArgumentError, match="train"):
        runner.setup(object(), Counting())
    with pytest.raises(ArgumentError, match="n_workers"):
        runner.setup(Algo(), Counting(), n_workers=0)
    with runner as entered:  # as garage's LocalTFRunner
        entered.setup(Algo(), Counting())
    with pytest.raises(ArgumentError, match="batch_size"):
        runner.train(1)


@pytest.mark.slow
def test_training_counts_and_gives_the_algorithms_result(tmp_path: Path) -> None:
    set_seed(1)
    algo = Algo()
    runner = runner_in(tmp_path, algo, "last")
    result = runner.train(n_epochs=3, batch_size=10, store_paths=True)
    assert result == algo.memory
    assert algo.seen == [(0, 0), (1, 1), (2, 2)]
    assert len(set(algo.drawn)) == 3  # each epoch samples with seeds of its own
    assert runner.total_env_steps == 3 * 12
    assert [path["rewards"].shape for path in runner.step_path] == [(4,)] * 3
    assert runner.obtain_episodes(0, 5).n_steps == 8
    assert runner.get_env_copy() is not runner._env
    assert [entry.name for entry in tmp_path.iterdir()] == ["params.pkl"]


@pytest.mark.parametrize("sampler", [LocalSampler, MultiprocessingSampler])
def test_restored_training_goes_on_with_the_same_numbers(tmp_path: Path, sampler: Any) -> None:
    set_seed(1)
    whole = runner_in(tmp_path / "whole", Algo(sampler), n_workers=2).train(6, 16)
    set_seed(1)
    with pytest.raises(InterruptedError):
        runner_in(tmp_path / "cut", Algo(sampler, stop_after=3), n_workers=2).train(6, 16)
    set_seed(77)  # a process that goes on elsewhere has other states
    runner = LocalRunner(SnapshotConfig(str(tmp_path / "cut"), "all", 1))
    arguments = runner.restore(tmp_path / "cut", 1)
    assert (arguments.n_epochs, arguments.batch_size, arguments.start_epoch) == (6, 16, 2)
    np.random.rand()
    runner._algo.stop_after = None
    assert runner.resume() == whole
    assert runner._algo.seen == [(epoch, epoch) for epoch in range(6)]


def test_more_epochs_than_at_first(tmp_path: Path) -> None:
    set_seed(1)
    whole = runner_in(tmp_path / "whole", Algo()).train(5, 8)
    set_seed(1)
    runner_in(tmp_path / "short", Algo()).train(3, 8)
    runner = LocalRunner(SnapshotConfig(str(tmp_path / "short"), "all", 1))
    runner.restore(tmp_path / "short")
    assert runner.resume(n_epochs=5) == whole


def test_foreign_snapshots_are_refused(tmp_path: Path) -> None:
    runner = runner_in(tmp_path, Algo(), "last")
    runner._snapshotter.save_itr_params(0, {"algo": 1})
    with pytest.raises(SnapshotError, match="not made by"):
        runner.restore(tmp_path)
    with pytest.raises(FileNotFoundError):
        runner.restore(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_launcher_that_restores_itself_goes_on_in_its_folder(
    agent: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    @wrap_experiment(archive_launch_repo=False, snapshot_mode="all")
    def first(ctxt: Any, stop: Any = None) -> None:
        set_seed(1)
        runner = LocalRunner(ctxt)
        runner.setup(Algo(stop_after=stop), Counting(length=6))
        runner.train(5, 8)

    @wrap_experiment(archive_launch_repo=False, snapshot_mode="all")
    def second(ctxt: Any, source: Any) -> Any:
        runner = LocalRunner(ctxt)
        runner.restore(source, 1)
        runner._algo.stop_after = None
        runner.resume()
        assert rla_logger.flush(60)
        return Path(ctxt.log_dir)

    first({"log_dir": "whole"})
    with pytest.raises(InterruptedError):
        first({"log_dir": "cut"}, stop=3)
    folder = second({"log_dir": "cut", "use_existing_dir": True}, source="cut")
    elsewhere = second({"log_dir": "elsewhere"}, source="cut")
    await_end(tmp_path / "whole")
    whole = launchers.rows(tmp_path / "whole")
    assert len(whole) == 5
    assert launchers.rows(folder) == whole
    assert launchers.rows(elsewhere) == whole[2:]


@pytest.mark.slow
def test_an_experiment_as_an_item_of_a_database(
    agent: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program" / "main.py"
    program.parent.mkdir()
    program.write_text("import gymnasium\n")
    for words in (("init", "-q"), ("add", "main.py")):
        subprocess.run(["git", *words], cwd=program.parent, check=True)
    monkeypatch.chdir(program.parent)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(program), raising=False)  # a worker has none
    config = {"LOG_USED": ["log", "csv", "tensorboard"], "BACKUP_CONFIG": {"backup_code_dir": []}}

    @wrap_experiment(
        task_table_name="table", data_root=tmp_path / "db", rla_config=config, name_parameters="passed"
    )
    def experiment(ctxt: Any, seed: Any = 1, epochs: Any = 3) -> Any:
        set_seed(seed)
        runner = LocalRunner(ctxt)
        runner.setup(Algo(), Counting(length=6))
        runner.train(epochs, 8)
        assert rla_logger.flush(60)
        return Path(ctxt.log_dir), Path(ctxt.snapshot_dir)

    log, snapshots = experiment(seed=4)
    assert log.relative_to(tmp_path / "db").parts[:2] == ("log", "table")
    assert log.name.endswith("&seed=4")
    assert snapshots.relative_to(tmp_path / "db").parts[0] == "checkpoint"
    assert (snapshots / "params.pkl").is_file()
    assert [row["time-step"] for row in launchers.rows(log)] == ["8", "16", "24"]
    assert (log / "variant.json").is_file()
    code = tmp_path / "db" / "code" / log.relative_to(tmp_path / "db" / "log")
    assert (code / "launch_manifest.json").is_file()
    assert experiment(seed=5)[0] != log


@pytest.mark.soak
def test_an_epoch_costs_less_than_a_millisecond(tmp_path: Path) -> None:
    class Empty(Algo):
        def train(self, runner: Any) -> Any:
            begin = time.perf_counter()
            for _ in runner.step_epochs():
                pass
            return time.perf_counter() - begin

    runner = runner_in(tmp_path, Empty(), "none")
    assert runner.train(1000, 8) / 1000 < 0.001


def test_an_environment_that_cannot_be_pickled_is_one_in_the_snapshot(tmp_path: Path) -> None:
    set_seed(1)
    runner = LocalRunner(SnapshotConfig(str(tmp_path), "last", 1))
    runner.setup(Algo(), gymnasium.make("Locked-v0"))
    runner.train(2, 8)
    saved = Snapshotter().load(tmp_path)["env"]
    assert saved.reset(seed=1)[0].shape == (2,)
    assert saved.step(0)[1] == 1.0
    runner = LocalRunner(SnapshotConfig(str(tmp_path), "last", 1))
    runner.restore(tmp_path)
    assert runner.get_env_copy().reset(seed=1)[0].shape == (2,)


class OldBatch:
    """As samplers of garage 2020.06 give one."""

    def __init__(self, paths: list[dict[str, Any]]) -> None:
        self.paths = paths

    def to_trajectory_list(self) -> list[dict[str, Any]]:
        return self.paths


class NewBatch(OldBatch):
    lengths = np.array([2, 3])

    def to_list(self) -> list[dict[str, Any]]:
        return self.paths


@pytest.mark.parametrize("form", [list, OldBatch, NewBatch])
def test_a_sampler_of_ones_own_may_give_any_batch_of_garage(tmp_path: Path, form: Any) -> None:
    paths = [{"rewards": np.ones(2)}, {"rewards": np.ones(3)}]

    class OwnSampler:
        def obtain_samples(self, *_: Any) -> Any:
            return form(paths)

    class OwnAlgo(Algo):
        sampler = OwnSampler()

        def train(self, runner: Any) -> Any:
            for _ in runner.step_epochs():
                runner.step_path = runner.obtain_samples(0)
                assert runner.step_path == paths
                assert isinstance(runner.obtain_episodes(0), form)

    runner = runner_in(tmp_path, OwnAlgo(), "none")
    runner.train(2, 5, store_paths=True)
    assert runner.total_env_steps == 20
    assert runner._stats.last_path is runner._stats.last_episode is runner.step_path


PATHS = [{"rewards": np.ones(2)}, {"rewards": np.ones(3)}]


class KeywordOnly:
    def obtain_samples(self, itr: int, num_samples: int, *, agent_update: Any) -> Any:
        assert isinstance(agent_update, Drawing)
        return PATHS


class NoUpdates:
    def obtain_samples(self, itr: int, batch_size: int, whole_paths: bool = True) -> Any:
        assert whole_paths is True
        return iter(PATHS)


class Swapped:
    def obtain_samples(self, itr: int, num: int, env_update: Any, agent_update: Any) -> Any:
        assert env_update is None
        assert isinstance(agent_update, Drawing)
        return map(dict, PATHS)


@pytest.mark.parametrize("kind", [KeywordOnly, NoUpdates, Swapped])
def test_a_sampler_of_ones_own_gets_what_it_takes_and_may_give_an_iterator(tmp_path: Path, kind: Any) -> None:
    algo: Any = Algo()
    algo.sampler = kind()
    runner = runner_in(tmp_path, algo, "none")
    assert runner.obtain_samples(0, 5) == PATHS
    assert runner.obtain_episodes(0, 5) == PATHS
    assert runner.total_env_steps == 10
    if kind is not Swapped:
        with pytest.raises(TypeError, match="env_update"):  # what is asked for is not dropped
            runner.obtain_samples(0, 5, env_update=Counting())


def test_a_batch_without_paths_says_so(tmp_path: Path) -> None:
    class Bare:
        lengths = np.array([2, 3])

    algo: Any = Algo()
    algo.sampler = NoUpdates()
    runner = runner_in(tmp_path, algo, "none")
    for batch in (Bare(), None, {"rewards": np.ones(2)}):
        algo.sampler.obtain_samples = lambda *_, given=batch: given
        with pytest.raises(ArgumentError, match="gives no paths"):
            runner.obtain_samples(0, 5)
    algo.sampler.obtain_samples = lambda *_: Bare()
    assert isinstance(runner.obtain_episodes(0, 5), Bare)


class BaseSampler:
    """Of the kind that garage 2020.06 had beside the others."""

    def __init__(self, algo: Any, env: Any, size: int) -> None:
        self.calls = [algo, env, size]

    def start_worker(self) -> None:
        self.calls.append("start")

    def obtain_samples(self, itr: int, batch_size: int) -> Any:
        self.calls.append(batch_size)
        return PATHS

    def shutdown_worker(self) -> None:
        self.calls.append("end")


class SwappedSampler(LocalSampler):
    @classmethod
    def from_worker_factory(cls, worker_factory: Any, *, envs: Any, agents: Any) -> Any:  # type: ignore[override]
        return super().from_worker_factory(worker_factory, agents, envs)


def test_a_sampler_class_of_ones_own_is_made_as_garage_does(tmp_path: Path) -> None:
    algo = Algo()
    runner = runner_in(tmp_path, algo, "none", sampler_cls=BaseSampler, sampler_args={"size": 3})
    assert runner.obtain_samples(0, 5) == PATHS
    sampler = runner._sampling._sampler
    runner._sampling.end()
    assert sampler.calls == [algo, runner._env, 3, "start", 5, "end"]
    runner = runner_in(tmp_path, algo, "none", sampler_cls=SwappedSampler)
    assert runner.obtain_episodes(0, 5).n_steps >= 5
    runner._sampling.end()


def test_what_restore_gives_is_a_copy_that_may_be_changed(tmp_path: Path) -> None:
    runner = runner_in(tmp_path, Algo())
    runner.train(1, 8)
    arguments = runner.restore(tmp_path)
    arguments.n_epochs += 10
    arguments.store_paths = True
    assert arguments.store_episodes
    assert (runner._train_args.n_epochs, runner._train_args.store_episodes) == (1, False)
    of_release_0 = (
        b"ccopy_reg\n_reconstructor\np0\n(crla_client.launcher.snapshot.training_state\nTrainArgs\np1\nc__builtin__\n"
        b"object\np2\nNtp3\nRp4\n(lp5\nI3\naI8\naI00\naI00\naI00\naI1\nab."
    )
    assert pickle.loads(of_release_0) == TrainArgs(3, 8, start_epoch=1)
    assert pickle.dumps(TrainArgs(3, 8, start_epoch=1), 0) == of_release_0


def test_restore_seeds_at_once(tmp_path: Path) -> None:
    set_seed(7)
    runner = runner_in(tmp_path, Algo())
    runner.train(1, 8)
    set_seed(9)
    LocalRunner(SnapshotConfig(str(tmp_path), "none", 1)).restore(tmp_path)
    assert get_seed() == 7
