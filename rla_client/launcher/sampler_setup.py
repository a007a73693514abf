"""From what `LocalRunner.setup` is told to the sampler: defaults first, then the object."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.deterministic import get_seed
from rla_client.launcher.samplers import DefaultWorker, LocalSampler, Sampler, WorkerFactory
from rla_client.launcher.samplers.factory import physical_cores
from rla_client.launcher.training_state import SetupArgs


def describe_setup(
    algo: object,
    sampler_cls: type[Sampler] | None,
    sampler_args: dict[str, Any] | None,
    n_workers: int | None,
    worker_class: type[Any] | None,
    worker_args: dict[str, Any] | None,
) -> SetupArgs:
    """Fill in what was left open; see LocalRunner.setup.

    Without a seed the samplers get a random one, which snapshots keep.

    Raises:
        ArgumentError: n_workers is below 1.
    """
    chosen = sampler_cls or getattr(algo, "sampler_cls", None) or LocalSampler
    if n_workers is None:
        default = getattr(chosen, "default_workers", physical_cores)  # a sampler of the user's own has none
        n_workers = default()
    if n_workers < 1:
        message = f"n_workers is at least 1, got {n_workers}"
        raise ArgumentError(message)
    seed = get_seed()
    return SetupArgs(
        sampler_cls=chosen,
        sampler_args=dict(sampler_args or {}),
        seed=secrets.randbits(32) if seed is None else seed,
        n_workers=n_workers,
        worker_class=worker_class or getattr(algo, "worker_cls", None) or DefaultWorker,
        worker_args=dict(worker_args or {}),
        max_episode_length=_episode_limit(algo),
    )


def make_sampler(setup: SetupArgs, algo: object, policy: object, env: object) -> Any:  # noqa: ANN401
    """The described sampler; a class of 2020.06's kind, without a factory method, gets algorithm and env."""
    sampler_cls: Any = setup.sampler_cls or LocalSampler
    if not hasattr(sampler_cls, "from_worker_factory"):
        sampler = sampler_cls(algo, env, **setup.sampler_args)
        if hasattr(sampler, "start_worker"):
            sampler.start_worker()
        return sampler
    factory = WorkerFactory(
        seed=setup.seed,
        n_workers=setup.n_workers,
        max_episode_length=setup.max_episode_length,
        worker_class=setup.worker_class,
        worker_args=setup.worker_args,
    )
    return sampler_cls.from_worker_factory(factory, agents=policy, envs=env, **setup.sampler_args)


def taken_by(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those keyword arguments that a function takes."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return arguments
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


class RunnerSampler:
    """The sampler of one runner: the algorithm's own, or one as `setup` described it."""

    def __init__(self) -> None:
        self._sampler: Any = None
        self._restored: list[bytes] = []

    def start(self, setup: SetupArgs, algo: object, policy: object, env: object) -> Any:  # noqa: ANN401
        """The sampler, made or started if need be."""
        if self._sampler is not None:
            return self._sampler
        given = getattr(algo, "sampler", None) or getattr(algo, "_sampler", None)
        if callable(getattr(given, "obtain_samples", None)):
            self._sampler = given
        else:
            self._sampler = make_sampler(setup, algo, policy, env)
        if self._restored:
            self._sampler.restore_env_states(self._restored)
            self._restored = []
        return self._sampler

    def end(self) -> None:
        """Shut it down. The algorithm's own starts its workers again when it is next asked."""
        sampler, self._sampler = self._sampler, None
        shut_down = getattr(sampler, "shutdown_worker", None)
        if shut_down is not None:
            shut_down()

    def env_states(self) -> list[bytes]:
        """The workers' environments, packed; none before the first samples."""
        take = getattr(self._sampler, "env_states", None)  # a sampler of the user's own may have none
        states: list[bytes] = [] if take is None else take()
        return states

    def restore(self, states: list[bytes]) -> None:
        """Give the next sampler these environments."""
        self._restored = states


def _episode_limit(algo: object) -> int | None:
    for name in ("max_episode_length", "max_path_length"):
        value = getattr(algo, name, None)
        if value is not None:
            return int(value)
    return None
