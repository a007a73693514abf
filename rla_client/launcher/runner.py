"""`LocalRunner` (later `Trainer`), the runner of a training's epochs.

`train` calls `algo.train(runner)`, which loops over `runner.step_epochs()`. Between two epochs the runner
dumps the row and then takes a snapshot, so a snapshot has the number of its rows. It also has the runner's
arguments and counters, the environment, algorithm, worker environments and generator states.

`restore` loads a snapshot and, in the same folder, cuts the outputs to its rows; `resume` runs the
remaining epochs. The generators' states are restored right before the first of them, after everything else
that might draw from them. The samples of an epoch depend on its number and the seed (sampling/worker.py),
so an interrupted and resumed run equals an uninterrupted one if the algorithm keeps its state in
attributes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from rla_client import logger as rla_logger
from rla_client.code.restored_secrets import restored
from rla_client.contract.errors import ArgumentError, NotSetupError, SnapshotError
from rla_client.launcher import dowel
from rla_client.launcher.context import ExperimentContext, ResumeFrom, SnapshotConfig
from rla_client.launcher.deterministic import capture_rng, restore_rng, set_seed
from rla_client.launcher.outputs import current_outputs
from rla_client.launcher.plotter import Plotter
from rla_client.launcher.sampling.env_pickle import EnvOfSpec, copy_env, env_to_save
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.garage_batch import count_steps, paths_of
from rla_client.launcher.sampling.runner_sampler import RunnerSampler, describe_setup, taken_by
from rla_client.launcher.sampling.sampler import Sampler
from rla_client.launcher.snapshot.snapshotter import Snapshotter
from rla_client.launcher.snapshot.training_state import (
    FORMAT_VERSION,
    SetupArgs,
    TrainArgs,
    TrainStats,
    older_name,
)


class LocalRunner:
    """Runs the training of one algorithm.

    Args:
        snapshot_config: the launcher's `ctxt`, or a SnapshotConfig.
        max_cpus: ignored, for compatibility with garage; see `setup(n_workers=…)`.

    Attributes:
        step_itr: the algorithm's iteration; the algorithm increments it.
        enable_logging: False leaves the epochs' rows and times to the algorithm.
        step_episode: the last samples, set by the algorithm; `step_path` is the same.
    """

    def __init__(self, snapshot_config: ExperimentContext | SnapshotConfig, max_cpus: int = 1) -> None:
        del max_cpus
        self._snapshotter = Snapshotter(
            snapshot_config.snapshot_dir, snapshot_config.snapshot_mode, snapshot_config.snapshot_gap
        )
        self._resume_from: ResumeFrom = getattr(snapshot_config, "resume_from", None)
        self._setup_args: SetupArgs | None = None
        self._train_args: TrainArgs | None = None
        self._stats = TrainStats()
        self._rng: dict[str, Any] | None = None
        self._sampling = RunnerSampler()
        self._algo: Any = None
        self._env: Any = None
        self._started = self._epoch_started = time.time()
        self._plotter: Plotter | None = None
        self.enable_logging = True
        self.step_itr = 0
        self.step_episode: Any = None

    def __enter__(self) -> LocalRunner:  # noqa: PYI034 - Self is of Python 3.11
        """Do nothing: scripts of garage's LocalTFRunner use the runner as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: sampling has ended with `train`."""

    step_path = older_name("step_episode")

    @property
    def total_env_steps(self) -> int:
        """Environment steps sampled so far, including those before a resume."""
        return self._stats.total_env_steps

    @total_env_steps.setter
    def total_env_steps(self, value: int) -> None:
        self._stats.total_env_steps = int(value)

    def setup(  # noqa: PLR0913, PLR0917 - garage's signature
        self,
        algo: object,
        env: object,
        sampler_cls: type[Sampler] | None = None,
        sampler_args: dict[str, Any] | None = None,
        n_workers: int | None = None,
        worker_class: type[Any] | None = None,
        worker_args: dict[str, Any] | None = None,
    ) -> None:
        """Set the algorithm, the environment and the sampler.

        Args:
            algo: has `train(runner)`; may have `policy` (or `exploration_policy`), `sampler_cls`,
                `max_episode_length` (or `max_path_length`), and `sampler`.
            env: a gymnasium environment.
            sampler_cls: default: the algorithm's, else LocalSampler. A class without `from_worker_factory`
                is called as in garage 2020.06: `sampler_cls(algo, env, **sampler_args)`.
            sampler_args: further keyword arguments of the sampler.
            n_workers: default: 1 for LocalSampler, else the machine's physical cores.
            worker_class: default: the algorithm's `worker_cls`, else DefaultWorker.
            worker_args: further keyword arguments of the worker class.

        Raises:
            ArgumentError: `algo` has no `train`, or n_workers is below 1.
        """
        if not callable(getattr(algo, "train", None)):
            raise ArgumentError(f"algo needs a method train(runner); {type(algo).__name__} has none")
        self._setup_args = describe_setup(
            algo, sampler_cls, sampler_args, n_workers, worker_class, worker_args
        )
        self._algo, self._env = algo, env

    def _ready(self) -> SetupArgs:
        if self._setup_args is None:
            raise NotSetupError("call setup(algo, env) or restore(from_dir) first")
        return self._setup_args

    def _policy(self) -> object:
        policy = getattr(self._algo, "exploration_policy", None)
        policy = policy if policy is not None else getattr(self._algo, "policy", None)
        if policy is None:
            raise NotSetupError("the algorithm needs an attribute `policy` to sample with")
        return policy

    def obtain_episodes(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: object = None,
        env_update: object = None,
    ) -> EpisodeBatch:
        """Sample at least `batch_size` steps with the algorithm's policy.

        A sampler of your own may return other batches: with `lengths`, with `to_list()` or
        `to_trajectory_list()`, or a list of garage's paths. They are returned unchanged; an iterator
        becomes a list. Such a sampler gets the updates as those keyword arguments that it has.

        Args:
            itr: ignored, for compatibility with garage; seeds depend on the number of calls.
            batch_size: steps; default: that of `train`.
            agent_update: another policy to sample with, or parameters for the current one.
            env_update: another environment from now on, or a function of the current one that returns it.

        Raises:
            NotSetupError: before `setup`, or the algorithm has no policy.
            ArgumentError: neither this call nor `train` has a batch size, or the sampler returned no
                batch.
            WorkerError: sampling failed repeatedly.
        """
        del itr
        setup = self._ready()
        size = batch_size or (self._train_args.batch_size if self._train_args else None)
        if not size:
            raise ArgumentError("batch_size is needed, here or in train(…)")
        policy = agent_update if agent_update is not None else self._policy()
        sampler = self._sampling.start(setup, self._algo, self._policy(), self._env)
        updates = {"agent_update": policy, "env_update": env_update}
        arguments = {"agent_update": agent_update, "env_update": env_update}
        explicit = {name: value for name, value in arguments.items() if value is not None}
        batch: Any = sampler.obtain_samples(
            self._stats.sampled, int(size), **taken_by(sampler.obtain_samples, updates) | explicit
        )
        if isinstance(batch, Iterator):
            batch = list(batch)
        self._stats.sampled += 1
        self._stats.total_env_steps += count_steps(batch)
        return cast("EpisodeBatch", batch)

    def obtain_samples(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: object = None,
        env_update: object = None,
    ) -> list[dict[str, Any]]:
        """Like `obtain_episodes`, but returns garage's paths (EpisodeBatch.to_list).

        Args:
            itr: as in `obtain_episodes`.
            batch_size: as in `obtain_episodes`.
            agent_update: as in `obtain_episodes`.
            env_update: as in `obtain_episodes`.

        Raises:
            ArgumentError: the batch has no paths.
        """
        return paths_of(self.obtain_episodes(itr, batch_size, agent_update, env_update))

    obtain_trajectories = obtain_episodes  # older name

    def get_env_copy(self) -> Any:  # noqa: ANN401
        """A copy of the environment, e.g. for evaluation."""
        self._ready()
        return copy_env(self._env)

    def train(
        self,
        n_epochs: int,
        batch_size: int | None = None,
        plot: bool = False,
        store_episodes: bool = False,
        pause_for_plot: bool = False,
        store_paths: bool = False,
    ) -> Any:  # noqa: ANN401 - what algo.train returns
        """Train; returns what `algo.train(runner)` returns.

        Args:
            n_epochs: total number of epochs.
            batch_size: minimum number of environment steps of one call for samples.
            plot: show an episode of the policy after each epoch.
            store_episodes: keep the last samples in each snapshot.
            pause_for_plot: wait for Enter after each shown episode.
            store_paths: older name of store_episodes.

        Raises:
            NotSetupError: before `setup`.
        """
        self._ready()
        store = store_episodes or store_paths
        self._train_args = TrainArgs(n_epochs, batch_size, plot, store, pause_for_plot)
        if self._resume_from is not None:
            source, self._resume_from = self._resume_from, None
            try:
                self.restore(self._snapshotter.folder, source)
            except FileNotFoundError as missing:
                if source != "last":
                    raise
                dowel.logger.log(f"Nothing to continue from ({missing}); beginning at the first epoch")
            else:
                return self.resume(n_epochs, batch_size, plot, store, pause_for_plot)
        return self._run()

    def resume(
        self,
        n_epochs: int | None = None,
        batch_size: int | None = None,
        plot: bool | None = None,
        store_episodes: bool | None = None,
        pause_for_plot: bool | None = None,
        store_paths: bool | None = None,
    ) -> Any:  # noqa: ANN401
        """Run the remaining epochs after `restore`; arguments override the former ones.

        Args:
            n_epochs: total number of epochs, including those before the resume.
            batch_size: as in `train`.
            plot: show episodes of the policy.
            store_episodes: keep the last samples in each snapshot.
            pause_for_plot: wait for Enter after each shown episode.
            store_paths: older name of store_episodes.

        Returns:
            What the algorithm's `train` returns.

        Raises:
            NotSetupError: before `restore`.
        """
        if self._train_args is None or self._rng is None:
            raise NotSetupError("call restore(from_dir) before resume()")
        given = {
            "n_epochs": n_epochs,
            "batch_size": batch_size,
            "plot": plot,
            "store_episodes": store_paths if store_episodes is None else store_episodes,
            "pause_for_plot": pause_for_plot,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        args = replace(self._train_args, **changes, start_epoch=self._stats.total_epoch + 1)
        self._train_args = args
        if args.start_epoch >= args.n_epochs:
            dowel.logger.log(f"All {args.n_epochs} epochs are done; resume(n_epochs=…) adds some")
        return self._run()

    def _run(self) -> object:
        try:
            return self._algo.train(self)
        finally:
            self._sampling.end()
            if self._plotter is not None:
                self._plotter.close()
                self._plotter = None
            self._snapshotter.wait()

    def step_epochs(self) -> Iterator[int]:
        """Yield the number of each epoch; between them, log the row and take the snapshot.

        Raises:
            NotSetupError: outside of `train` and `resume`.
        """
        args = self._train_args
        if args is None:
            raise NotSetupError("step_epochs() works inside train(…)")
        self._started = time.time()
        self.step_itr = self._stats.total_itr
        self.step_episode = None
        if self._rng is not None:
            restore_rng(self._rng)
            self._rng = None
        for epoch in range(args.start_epoch, args.n_epochs):
            self._epoch_started = time.time()
            with dowel.logger.prefix(f"epoch #{epoch} | "):
                yield epoch
                self._stats.last_episode = self.step_episode if args.store_episodes else None
                self._stats.total_epoch = epoch
                self._stats.total_itr = self.step_itr
                if self.enable_logging:
                    self.log_diagnostics(args.pause_for_plot)
                    dowel.logger.dump_all(self.step_itr)
                    dowel.tabular.clear()
                self.save(epoch)

    def log_diagnostics(self, pause_for_plot: bool = False) -> None:
        """Write the epoch's times as text and add `tabular` and TotalEnvSteps to the row.

        With `train(plot=True)` it then shows an episode, and waits for Enter if `pause_for_plot`.
        """
        now = time.time()
        dowel.logger.log(f"Time {now - self._started:.2f} s")
        dowel.logger.log(f"EpochTime {now - self._epoch_started:.2f} s")
        dowel.tabular.record("TotalEnvSteps", self._stats.total_env_steps)
        dowel.logger.log(dowel.tabular)
        if self._train_args is not None and self._train_args.plot:
            setup = self._ready()
            if self._plotter is None:
                self._plotter = Plotter(self._env, setup.seed, setup.max_episode_length)
            self._plotter.show(self._policy(), self._stats.total_epoch, pause=pause_for_plot)

    def save(self, epoch: int) -> None:
        """Save a snapshot of the current state, if one is due at this epoch.

        Raises:
            NotSetupError: before `setup`.
            SnapshotError: the algorithm or environment cannot be pickled.
        """
        setup = self._ready()
        if not self._snapshotter.is_due(epoch):
            return
        setup = _without_secrets(setup)
        outputs = current_outputs()
        rows = outputs.rows if outputs is not None else 0
        params = {
            "format_version": FORMAT_VERSION,
            "setup_args": setup,
            "train_args": self._train_args,
            "stats": self._stats,
            "env": env_to_save(self._env),
            "algo": self._algo,
            "n_workers": setup.n_workers,
            "worker_class": setup.worker_class,
            "worker_args": setup.worker_args,
            "env_states": self._sampling.env_states(),
            "rows": rows,
            "rng": capture_rng(),
        }
        note = {"rows": rows, "env_steps": self._stats.total_env_steps}
        self._snapshotter.save_itr_params(epoch, params, note)

    def restore(
        self, from_dir: str | os.PathLike[str], from_epoch: int | str = "last", *, trust: bool = False
    ) -> TrainArgs:
        """Load a snapshot and set its seed. In the snapshot's own folder, cut the outputs to its rows.

        Args:
            from_dir: folder of the snapshots.
            from_epoch: number, `last` or `first`.
            trust: load it even if it is not your own; a snapshot runs code that its file names.

        Returns:
            Copy of the arguments of the interrupted `train`, with the epoch to continue at (`start_epoch`).

        Raises:
            FileNotFoundError, NotAFileError: no such snapshot.
            UntrustedCheckpointError: the snapshot is not your own, and `trust` is False.
            SnapshotError: it cannot be loaded, or is not a snapshot of a runner of this release.
        """
        saved = self._snapshotter.load(from_dir, from_epoch, trust=trust)
        if not isinstance(saved, dict) or saved.get("format_version") != FORMAT_VERSION:
            raise SnapshotError(f"the snapshot in {from_dir} was not made by this release's runner")
        self._sampling.end()
        self._setup_args, self._stats = self._with_secrets(saved["setup_args"]), saved["stats"]
        env = saved["env"]
        self._env = env.make() if isinstance(env, EnvOfSpec) else env  # release 0.1 saved it so
        self._algo, self._rng = saved["algo"], saved["rng"]
        self._sampling.restore(saved["env_states"])
        if self._rng is not None and self._rng.get("seed") is not None:
            set_seed(self._rng["seed"])
        args: TrainArgs = saved["train_args"] or TrainArgs(0, None)
        self._train_args = replace(args, start_epoch=self._stats.total_epoch + 1)
        outputs = current_outputs()
        if outputs is not None and os.path.realpath(from_dir) == os.path.realpath(self._snapshotter.folder):
            outputs.rewind(saved["rows"])
        dowel.logger.log(f"Restored epoch {self._stats.total_epoch} from {from_dir}")
        return replace(self._train_args)

    def _with_secrets(self, saved: SetupArgs) -> SetupArgs:
        """A snapshot's arguments of `setup`, with secrets from this process's `setup`."""
        own = self._setup_args or saved
        missing: list[str] = []
        sampler_args = restored(saved.sampler_args, own.sampler_args, missing, "sampler_args")
        worker_args = restored(saved.worker_args, own.worker_args, missing, "worker_args")
        if missing:
            dowel.logger.log(f"setup() gave no {', '.join(missing)}; secrets are not in snapshots")
        return replace(saved, sampler_args=sampler_args, worker_args=worker_args)

    def __reduce__(self) -> tuple[type[LocalRunner], tuple[SnapshotConfig]]:
        # an algorithm may have its runner as an attribute; its pickle has only the snapshot folder and mode
        shot = self._snapshotter
        return LocalRunner, (SnapshotConfig(shot.snapshot_dir, shot.snapshot_mode, shot.snapshot_gap),)


def _without_secrets(setup: SetupArgs) -> SetupArgs:
    secrets = rla_logger.get_current().secrets
    if secrets is None:
        return setup
    shown = secrets.parameters
    return replace(setup, sampler_args=shown(setup.sampler_args), worker_args=shown(setup.worker_args))


Trainer = LocalRunner
