"""Episodes: environments of any library are driven through them, and they become arrays.

    gymnasium     reset(seed=…) → (observation, info)    step → (o, r, terminated, truncated, info)
    older gym     seed(…), reset() → observation          step → (o, r, done, info)
    garage        reset() → (observation, episode_info)   step → EnvStep (reward, observation, env_info,
                                                          step_type, …)

An environment whose `reset` takes no seed is seeded by its `seed` method where it has one, else
through an environment that it wraps (one of its attributes), which is reset once more for that. Where
there is neither, one warning says that its episodes repeat only if they draw from seeded generators.

For further workers, for worker processes and for snapshots an environment is carried by cloudpickle. One
that cannot be pickled (a simulator behind C++) but was made by `gymnasium.make` is made anew from its spec
instead; it then starts afresh, which for environments that are reset at each epoch makes no difference.

`EpisodeBatch` is what samplers give and algorithms read: steps of all its episodes lie behind each other;
`lengths` says where each ends. Shapes there: N episodes, S = lengths.sum() steps in all, O and A the shapes
of one observation and action. An observation space that is not an array (dict, tuple) gives arrays of objects
of shape (S,).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol, TypeAlias

import cloudpickle
import numpy as np
import numpy.typing as npt

from rla_client.contract.errors import ArgumentError, SnapshotError

PATH_KEYS = (
    "observations", "next_observations", "actions", "rewards", "terminals", "dones", "step_types",
    "env_infos", "agent_infos", "episode_infos",
)  # fmt: skip
NEW_STEP = 5  # observation, reward, terminated, truncated, info
TRUNCATED_KEY = "TimeLimit.truncated"  # older gym's way to say that a limit of steps ended the episode

Array: TypeAlias = npt.NDArray[Any]
Infos: TypeAlias = dict[str, Array]

_told: set[str] = set()
_log = logging.getLogger("rla_client")
_takes_seed: dict[type, bool] = {}
_warned: set[type] = set()


class StepType(IntEnum):
    """Where in its episode a step lies."""

    FIRST = 0
    MID = 1
    TERMINAL = 2  # the environment ended the episode
    TIMEOUT = 3  # a limit of steps ended it: the value of what follows is not zero


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What an environment takes and gives, in garage's words.

    Attributes:
        observation_space: gymnasium's, of one observation.
        action_space: likewise, of one action.
        max_episode_length: steps after which an episode is cut; None: the environment's own affair.
    """

    observation_space: Any
    action_space: Any
    max_episode_length: int | None = None

    @classmethod
    def of(cls, env: object, max_episode_length: int | None) -> EnvSpec | None:
        """The spec of an environment; None for what has no spaces, as a function that makes one."""
        if not hasattr(env, "observation_space") or not hasattr(env, "action_space"):
            return None
        return cls(env.observation_space, env.action_space, max_episode_length)


class Env(Protocol):
    """An environment of any library."""

    @property
    def reset(self) -> Callable[..., Any]:
        """Begins an episode."""

    @property
    def step(self) -> Callable[..., Any]:
        """Acts once."""


def reset_env(env: Env, seed: int | None) -> tuple[Any, dict[str, Any]]:
    """Begin an episode: (first observation, what `reset` said about it).

    Args:
        env: the environment.
        seed: for the episode, and those after it; None continues with the generator there is.
    """
    answer = env.reset() if seed is None else _reset_seeded(env, seed)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):  # noqa: PLR2004
        return answer[0], dict(answer[1])
    return answer, {}


def step_env(env: Env, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Act once: (observation, reward, terminated, truncated, info)."""
    answer = env.step(action)
    if hasattr(answer, "step_type"):
        kind = int(answer.step_type)
        ends = kind == StepType.TERMINAL, kind == StepType.TIMEOUT
        return answer.observation, float(answer.reward), *ends, dict(answer.env_info)
    if len(answer) == NEW_STEP:
        observation, reward, terminated, truncated, info = answer
        return observation, float(reward), bool(terminated), bool(truncated), info
    observation, reward, done, info = answer
    cut = bool(done) and bool(info.get(TRUNCATED_KEY))
    return observation, float(reward), bool(done) and not cut, cut, info


def _reset_seeded(env: Env, seed: int) -> object:
    if _reset_takes_seed(env):
        return env.reset(seed=seed)
    if not _seed_otherwise(env, seed) and type(env) not in _warned:
        _warned.add(type(env))
        _log.warning(
            "reset() of %s takes no seed and there is no seed(): its episodes repeat only if they draw "
            "from generators that set_seed seeds", type(env).__name__,
        )  # fmt: skip
    return env.reset()


def _seed_otherwise(env: Any, seed: int) -> bool:  # noqa: ANN401
    if callable(getattr(env, "seed", None)):
        env.seed(seed)
        return True
    for inner in list(getattr(env, "__dict__", {}).values()):
        if callable(getattr(inner, "reset", None)) and callable(getattr(inner, "step", None)):
            if _reset_takes_seed(inner):
                inner.reset(seed=seed)
                return True
            return _seed_otherwise(inner, seed)
    return False


def _reset_takes_seed(env: Env) -> bool:
    kind = type(env)
    known = _takes_seed.get(kind)
    if known is None:
        try:
            parameters = inspect.signature(env.reset).parameters.values()
        except (TypeError, ValueError):  # written in C
            known = True
        else:
            known = any(one.name == "seed" or one.kind is one.VAR_KEYWORD for one in parameters)
        _takes_seed[kind] = known
    return known


def pack_env(env: object) -> bytes:
    """Bytes from which `unpack_env` makes a copy.

    Raises:
        SnapshotError: it can neither be pickled nor be made again from a spec.
    """
    try:
        data: bytes = cloudpickle.dumps(env)
    except Exception as error:  # any environment may raise anything
        spec = getattr(env, "spec", None)
        if spec is None:
            message = f"the environment can neither be pickled ({error}) nor made again: it has no spec"
            raise SnapshotError(message) from error
        if repr(spec) not in _told:
            _told.add(repr(spec))
            _log.warning("%s cannot be pickled (%s); copies are made from its spec", env, error)
        data = cloudpickle.dumps(EnvOfSpec(spec))
    return data


def unpack_env(data: bytes) -> Any:  # noqa: ANN401
    """The copy. Runs code of the environment: only for bytes of this user's own."""
    return cloudpickle.loads(data)


def copy_env(env: object) -> object:
    """A copy that shares nothing with `env`."""
    return unpack_env(pack_env(env))


class EnvOfSpec:
    """Stands for an environment in a pickle; loading gives the environment, made from its spec."""

    def __init__(self, spec: object) -> None:
        self.spec = spec

    def make(self) -> object:
        """Make it."""
        import gymnasium  # noqa: PLC0415

        return gymnasium.make(self.spec)

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        import gymnasium  # noqa: PLC0415

        return gymnasium.make, (self.spec,)


def env_to_save(env: Any) -> object:  # noqa: ANN401
    """`env` itself if it can be pickled, else what makes it anew."""
    try:
        cloudpickle.dumps(env)
    except Exception:  # noqa: BLE001 - any environment may raise anything
        return EnvOfSpec(env.spec) if getattr(env, "spec", None) is not None else env
    return env


class Episode:
    """An episode in the making; `take` hands over the steps since the last `take`."""

    def __init__(self, env: Env, seed: int | None, limit: int | None) -> None:
        self._env = env
        self._limit = limit
        self._steps = 0
        self.ended = False
        self.observation, self._reset_info = reset_env(env, seed)
        self._taken: list[tuple[Any, ...]] = []  # see `step`

    @property
    def pending(self) -> int:
        """Steps that `take` would hand over."""
        return len(self._taken)

    def step(self, action: object, agent_info: dict[str, Any]) -> None:
        """Act once."""
        following, reward, terminated, truncated, info = step_env(self._env, action)
        self._steps += 1
        kind = StepType.FIRST if self._steps == 1 else StepType.MID
        if terminated:
            kind = StepType.TERMINAL
        elif truncated or self._steps == self._limit:
            kind = StepType.TIMEOUT
        self._taken.append((self.observation, action, reward, kind, info, agent_info))
        self.observation = following
        self.ended = kind >= StepType.TERMINAL

    def take(self) -> EpisodeBatch:
        """The steps since the last call, as a batch of one.

        Raises:
            ArgumentError: there are none.
        """
        if not self._taken:
            raise ArgumentError("an episode of a batch has at least one step")
        observations, actions, rewards, types, env_infos, agent_infos = zip(*self._taken, strict=True)
        batch = EpisodeBatch(
            stack(observations),
            stack([self.observation]),
            stack(actions),
            np.asarray(rewards, dtype=np.float64),
            np.asarray(types, dtype=np.int8),
            np.asarray([len(rewards)], dtype=np.int64),
            stack_infos(env_infos),
            stack_infos(agent_infos),
            stack_infos([self._reset_info]),
        )
        self._taken = []
        return batch


@dataclass(frozen=True, slots=True)
class EpisodeBatch:
    """N episodes, or fragments of episodes.

    Attributes:
        observations: (S, *O), what each action was chosen by.
        last_observations: (N, *O), what followed the last action of each episode.
        actions: (S, *A).
        rewards: float64 (S,).
        step_types: int8 (S,), of StepType. The last step of an episode is TERMINAL or TIMEOUT;
            of a fragment also FIRST or MID.
        lengths: int64 (N,), steps of each episode, at least 1.
        env_infos: key → (S, …): those keys that `env.step` gave at every step.
        agent_infos: key → (S, …): those keys that the policy gave at every step.
        episode_infos: key → (N, …): what `env.reset` gave, likewise.
        env_spec: what the samplers' environment takes and gives; None where nobody said.
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
        """S."""
        return len(self.rewards)

    @property
    def next_observations(self) -> Array:
        """(S, *O): what followed each action."""
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
        """(N, max(lengths), *O), zeros behind the end of each episode."""
        return self._padded(self.observations)

    @property
    def padded_next_observations(self) -> Array:
        """(N, max(lengths), *O): what followed each action, likewise."""
        return self._padded(self.next_observations)

    @property
    def padded_actions(self) -> Array:
        """(N, max(lengths), *A), likewise."""
        return self._padded(self.actions)

    @property
    def padded_rewards(self) -> Array:
        """Float64 (N, max(lengths)), likewise."""
        return self._padded(self.rewards)

    @property
    def padded_step_types(self) -> Array:
        """Int8 (N, max(lengths)), likewise; the zeros behind the end are no FIRST, see `valids`."""
        return self._padded(self.step_types)

    @property
    def padded_env_infos(self) -> Infos:
        """Key → (N, max(lengths), …), likewise; None behind the end in arrays of objects."""
        return {key: self._padded(values) for key, values in self.env_infos.items()}

    @property
    def padded_agent_infos(self) -> Infos:
        """Key → (N, max(lengths), …), as padded_env_infos."""
        return {key: self._padded(values) for key, values in self.agent_infos.items()}

    @property
    def valids(self) -> Array:
        """Float64 (N, max(lengths)): 1 where there is a step, 0 behind the end."""
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
            env_spec: kept as the batch's `env_spec`; None if there is none to keep.
            paths: dicts with observations, next_observations (else the last observation counts as what
                followed), actions, rewards, and step_types, dones or terminals.

        Raises:
            ArgumentError: there are none, one lacks something, or arrays do not fit together.
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
        """All episodes of batches, given one by one or as one list, in their order.

        Of the infos those keys stay that all of them have; the env_spec is the first one's.

        Raises:
            ArgumentError: there are none.
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
    """One array with `values` along its first axis; an array of objects where they differ in shape."""
    try:
        return np.stack([np.asarray(value) for value in values])
    except (ValueError, TypeError):
        return _objects(values)


def stack_infos(infos: Sequence[dict[str, Any]]) -> Infos:
    """Key → stacked values, for the keys that every one of `infos` has."""
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


def paths_of(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of a sampler of the user's own
    """A batch of any release of garage as its list of paths.

    Raises:
        ArgumentError: it is none.
    """
    for name in ("to_list", "to_trajectory_list"):
        if callable(getattr(batch, name, None)):
            return list(getattr(batch, name)())
    paths = list(batch) if isinstance(batch, Iterable) else [batch]
    if not all(isinstance(path, Mapping) for path in paths):
        raise ArgumentError(
            f"{type(batch).__name__} gives no paths: a batch has to_list() or to_trajectory_list(), "
            "or is a list of dicts"
        )
    return paths


def episodes_of(batch: Any) -> EpisodeBatch:  # noqa: ANN401 - of a worker of the user's own
    """Such a batch as ours.

    Raises:
        ArgumentError: it is none.
    """
    return batch if isinstance(batch, EpisodeBatch) else EpisodeBatch.from_list(None, paths_of(batch))


def count_steps(batch: object) -> int:
    """Environment steps in such a batch.

    Raises:
        ArgumentError: it is none.
    """
    lengths = getattr(batch, "lengths", None)
    return int(sum(lengths)) if lengths is not None else sum(len(path["rewards"]) for path in paths_of(batch))
