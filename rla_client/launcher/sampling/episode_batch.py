"""A batch of episodes, as samplers return it to algorithms.

Arrays have the steps of all episodes one after the other; `lengths` has the number of steps of each.
Shapes: N episodes, S = lengths.sum() steps in all, O and A the shapes of one observation and action.
Observations that are no arrays (dict, tuple) become arrays of objects of shape (S,).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.sampling.env_spec import StepType

PATH_KEYS = (
    "observations", "next_observations", "actions", "rewards", "terminals", "dones", "step_types",
    "env_infos", "agent_infos", "episode_infos",
)  # fmt: skip
Array: TypeAlias = npt.NDArray[Any]
Infos: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True)
class EpisodeBatch:
    """N episodes, or fragments of episodes.

    Attributes:
        observations: (S, *O), the observation before each action.
        last_observations: (N, *O), the observation after the last action of each episode.
        actions: (S, *A).
        rewards: float64 (S,).
        step_types: int8 (S,), of StepType. The last step of an episode is TERMINAL or TIMEOUT;
            of a fragment also FIRST or MID.
        lengths: int64 (N,), steps of each episode, at least 1.
        env_infos: key → (S, …): the keys that `env.step` returned at every step.
        agent_infos: key → (S, …): the keys that the policy returned at every step.
        episode_infos: key → (N, …): the keys that `env.reset` returned for every episode.
        env_spec: spec of the samplers' environment; None if unknown.
    """

    observations: Array
    last_observations: Array
    actions: Array
    rewards: Array
    step_types: Array
    lengths: Array
    env_infos: Infos = field(default_factory=dict)
    agent_infos: Infos = field(default_factory=dict)
    episode_infos: Infos = field(default_factory=dict)
    env_spec: Any = None

    def __post_init__(self) -> None:
        steps, episodes = int(self.lengths.sum()), len(self.lengths)
        if episodes and int(self.lengths.min()) < 1:
            raise ArgumentError("an episode of a batch has at least one step")
        for name in ("observations", "actions", "rewards", "step_types"):
            _check_rows(name, getattr(self, name), steps)
        _check_rows("last_observations", self.last_observations, episodes)
        for infos, rows in (
            (self.env_infos, steps),
            (self.agent_infos, steps),
            (self.episode_infos, episodes),
        ):
            for name, values in infos.items():
                _check_rows(name, values, rows)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_steps(self) -> int:
        """Number of steps of all episodes, S."""
        return len(self.rewards)

    @property
    def next_observations(self) -> Array:
        """(S, *O): the observation after each action."""
        following = np.concatenate([self.observations[1:], self.last_observations[-1:]])
        ends = np.cumsum(self.lengths) - 1
        following[ends] = self.last_observations
        return following

    @property
    def terminals(self) -> Array:
        """Bool (S,): the environment ended the episode at this step."""
        result: Array = self.step_types == StepType.TERMINAL
        return result

    @property
    def dones(self) -> Array:
        """Bool (S,): the episode ended at this step, by the environment or by a limit."""
        result: Array = self.step_types >= StepType.TERMINAL
        return result

    @property
    def returns(self) -> Array:
        """Float64 (N,): sum of rewards of each episode."""
        starts = np.cumsum(self.lengths) - self.lengths
        result: Array = np.add.reduceat(self.rewards, starts) if len(self) else np.zeros(0)
        return result

    @property
    def padded_observations(self) -> Array:
        """(N, max(lengths), *O), zeros after the end of each episode."""
        return self._padded(self.observations)

    @property
    def padded_next_observations(self) -> Array:
        """(N, max(lengths), *O): the observation after each action, padded likewise."""
        return self._padded(self.next_observations)

    @property
    def padded_actions(self) -> Array:
        """(N, max(lengths), *A), padded likewise."""
        return self._padded(self.actions)

    @property
    def padded_rewards(self) -> Array:
        """Float64 (N, max(lengths)), padded likewise."""
        return self._padded(self.rewards)

    @property
    def padded_step_types(self) -> Array:
        """Int8 (N, max(lengths)), padded likewise; zeros after the end do not mean FIRST, see `valids`."""
        return self._padded(self.step_types)

    @property
    def padded_env_infos(self) -> Infos:
        """Key → (N, max(lengths), …), padded likewise; None after the end in arrays of objects."""
        return {key: self._padded(values) for key, values in self.env_infos.items()}

    @property
    def padded_agent_infos(self) -> Infos:
        """Key → (N, max(lengths), …), as padded_env_infos."""
        return {key: self._padded(values) for key, values in self.agent_infos.items()}

    @property
    def valids(self) -> Array:
        """Float64 (N, max(lengths)): 1 for a step, 0 after the end."""
        return self._padded(np.ones(self.n_steps))

    @property
    def observations_list(self) -> list[Array]:
        """Observations of each episode, (T, *O)."""
        return np.split(self.observations, np.cumsum(self.lengths)[:-1])

    @property
    def actions_list(self) -> list[Array]:
        """Actions of each episode, (T, *A)."""
        return np.split(self.actions, np.cumsum(self.lengths)[:-1])

    def _padded(self, rows: Array) -> Array:
        longest = int(self.lengths.max()) if len(self) else 0
        shape = (len(self), longest, *rows.shape[1:])
        padded = np.full(shape, None) if rows.dtype == object else np.zeros(shape, dtype=rows.dtype)
        padded[np.arange(longest) < self.lengths[:, None]] = rows
        return padded

    def split(self) -> Iterator[EpisodeBatch]:
        """One batch per episode."""
        end = 0
        for number, length in enumerate(self.lengths):
            start, end = end, end + int(length)
            steps, one = slice(start, end), slice(number, number + 1)
            yield EpisodeBatch(
                self.observations[steps],
                self.last_observations[one],
                self.actions[steps],
                self.rewards[steps],
                self.step_types[steps],
                self.lengths[one],
                {key: values[steps] for key, values in self.env_infos.items()},
                {key: values[steps] for key, values in self.agent_infos.items()},
                {key: values[one] for key, values in self.episode_infos.items()},
                self.env_spec,
            )

    def to_list(self) -> list[dict[str, Any]]:
        """Garage's paths: one dict per episode of T steps.

        Keys: observations (T, *O), next_observations (T, *O), actions (T, *A), rewards (T,),
        terminals and dones (bool, (T,)), step_types (T,), env_infos and agent_infos (key → (T, …)),
        episode_infos (key → (1, …)).
        """
        return [{key: getattr(episode, key) for key in PATH_KEYS} for episode in self.split()]

    @classmethod
    def from_list(cls, env_spec: object, paths: Sequence[dict[str, Any]]) -> EpisodeBatch:
        """The reverse of `to_list`; step_types and infos may be missing.

        Args:
            env_spec: the batch's `env_spec`.
            paths: dicts with observations, next_observations (without them, the last observation is
                repeated), actions, rewards, and step_types, dones or terminals.

        Raises:
            ArgumentError: there are no paths, a path lacks a key, or its arrays have different lengths.
        """
        try:
            batches = [_one_path(path) for path in paths]
        except KeyError as missing:
            raise ArgumentError(f"a path has no {missing}") from missing
        return replace(cls.concatenate(batches), env_spec=env_spec)

    to_trajectory_list = to_list  # older names
    from_trajectory_list = from_list

    @classmethod
    def concatenate(cls, *given: EpisodeBatch | Sequence[EpisodeBatch]) -> EpisodeBatch:
        """All episodes of batches, passed one by one or as one list, in their order.

        The result has the info keys that all batches have, and the env_spec of the first.

        Raises:
            ArgumentError: there are no batches.
        """
        batches: list[EpisodeBatch] = []
        for one in given:
            batches.extend([one] if isinstance(one, EpisodeBatch) else one)
        if not batches:
            raise ArgumentError("no episodes to put together")
        if len(batches) == 1:
            return batches[0]

        def joined(name: str) -> Array:
            return np.concatenate([getattr(batch, name) for batch in batches])

        def infos(name: str) -> Infos:
            first: Infos = getattr(batches[0], name)
            keys = [key for key in first if all(key in getattr(batch, name) for batch in batches)]
            return {key: _join([getattr(batch, name)[key] for batch in batches]) for key in keys}

        return cls(
            joined("observations"),
            joined("last_observations"),
            joined("actions"),
            joined("rewards"),
            joined("step_types"),
            joined("lengths"),
            infos("env_infos"),
            infos("agent_infos"),
            infos("episode_infos"),
            batches[0].env_spec,
        )


def _one_path(path: dict[str, Any]) -> EpisodeBatch:
    rewards = np.asarray(path["rewards"], dtype=np.float64).reshape(-1)
    types = path.get("step_types")
    if types is None:
        types = np.full(len(rewards), StepType.MID)
        types[:1] = StepType.FIRST
        if np.any(np.ravel(path["dones" if "dones" in path else "terminals"])[-1:]):
            types[-1] = StepType.TERMINAL
    return EpisodeBatch(
        np.asarray(path["observations"]),
        np.asarray(path["next_observations" if "next_observations" in path else "observations"])[-1:],
        np.asarray(path["actions"]),
        rewards,
        np.asarray(types, dtype=np.int8),
        np.asarray([len(rewards)], dtype=np.int64),
        dict(path.get("env_infos", {})),
        dict(path.get("agent_infos", {})),
        dict(path.get("episode_infos", {})),
    )


def stack(values: Sequence[object]) -> Array:
    """One array with `values` along its first axis; an array of objects if their shapes differ."""
    try:
        return np.stack([np.asarray(value) for value in values])
    except (ValueError, TypeError):
        return _objects(values)


def stack_infos(infos: Sequence[dict[str, Any]]) -> Infos:
    """Key → stacked values, for the keys that all of `infos` have."""
    if not infos:
        return {}
    keys = [key for key in infos[0] if all(key in info for info in infos)]
    return {key: stack([info[key] for info in infos]) for key in keys}


def _join(parts: Sequence[Array]) -> Array:
    try:
        return np.concatenate(parts)
    except ValueError:  # shapes that differ between episodes
        return _objects([value for part in parts for value in part])


def _objects(values: Sequence[object]) -> Array:
    array = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        array[number] = value
    return array


def _check_rows(name: str, values: Array, rows: int) -> None:
    if len(values) != rows:
        raise ArgumentError(f"{name} has {len(values)} rows, expected {rows}")
