"""Sampler of one runner.

Its arguments come from `LocalRunner.setup`, else from the algorithm's attributes, else from defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.call_signature import signature_of
from rla_client.launcher.sampling.local_sampler import LocalSampler
from rla_client.launcher.sampling.sampler import Sampler
from rla_client.launcher.sampling.worker import DefaultWorker
from rla_client.launcher.sampling.worker_factory import WorkerFactory, physical_cores, seed_or_random
from rla_client.launcher.snapshot.training_state import SetupArgs


def describe_setup(
    algo: object,
    sampler_cls: type[Sampler] | None,
    sampler_args: dict[str, Any] | None,
    n_workers: int | None,
    worker_class: type[Any] | None,
    worker_args: dict[str, Any] | None,
) -> SetupArgs:
    """Complete the arguments of LocalRunner.setup by defaults.

    Without a seed of the experiment the samplers get a random one, which snapshots keep.

    Raises:
        ArgumentError: n_workers is below 1.
    """
    chosen = sampler_cls or getattr(algo, "sampler_cls", None) or LocalSampler
    if n_workers is None:
        default = getattr(chosen, "default_workers", physical_cores)  # a user's own sampler has none
        n_workers = default()
    if n_workers < 1:
        raise ArgumentError(f"n_workers is at least 1, got {n_workers}")
    return SetupArgs(
        sampler_cls=chosen,
        sampler_args=dict(sampler_args or {}),
        seed=seed_or_random(),
        n_workers=n_workers,
        worker_class=worker_class or getattr(algo, "worker_cls", None) or DefaultWorker,
        worker_args=dict(worker_args or {}),
        max_episode_length=_episode_limit(algo),
    )


def _episode_limit(algo: object) -> int | None:
    limits = (getattr(algo, name, None) for name in ("max_episode_length", "max_path_length"))
    return next((int(limit) for limit in limits if limit is not None), None)


class RunnerSampler:
    """The sampler of one runner: the algorithm's own, or one as `setup` described it."""

    def __init__(self) -> None:
        self._sampler: Any = None
        self._restored: list[bytes] = []

    def start(self, setup: SetupArgs, algo: object, policy: object, env: object) -> Any:  # noqa: ANN401
        """Return the sampler; make or start it if necessary."""
        if self._sampler is not None:
            return self._sampler
        own = getattr(algo, "sampler", None) or getattr(algo, "_sampler", None)
        sampler_cls: Any = setup.sampler_cls or LocalSampler
        if callable(getattr(own, "obtain_samples", None)):
            self._sampler = own
        elif hasattr(sampler_cls, "from_worker_factory"):
            factory = WorkerFactory(
                seed=setup.seed,
                n_workers=setup.n_workers,
                max_episode_length=setup.max_episode_length,
                worker_class=setup.worker_class,
                worker_args=setup.worker_args,
            )
            self._sampler = sampler_cls.from_worker_factory(
                factory, agents=policy, envs=env, **setup.sampler_args
            )
        else:  # as in garage 2020.06
            sampler = sampler_cls(algo, env, **setup.sampler_args)
            if hasattr(sampler, "start_worker"):
                sampler.start_worker()
            self._sampler = sampler
        if self._restored:
            self._sampler.restore_env_states(self._restored)
            self._restored = []
        return self._sampler

    def end(self) -> None:
        """Shut the sampler down. The algorithm's own sampler starts its workers again at the next request."""
        sampler, self._sampler = self._sampler, None
        shut_down = getattr(sampler, "shutdown_worker", None)
        if shut_down is not None:
            shut_down()

    def env_states(self) -> list[bytes]:
        """The workers' environments, packed; none before the first samples."""
        take = getattr(self._sampler, "env_states", None)  # a user's own sampler may have none
        states: list[bytes] = [] if take is None else take()
        return states

    def restore(self, states: list[bytes]) -> None:
        """Keep environments for the next sampler."""
        self._restored = states


def taken_by(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a function accepts."""
    try:
        parameters = signature_of(function).parameters
    except (TypeError, ValueError):  # written in C
        return arguments
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
