"""Environments as bytes.

Further workers, worker processes and snapshots get an environment by cloudpickle. An environment that
cannot be pickled (e.g. a simulator in C++) but was made by `gymnasium.make` is made again from its spec
instead. It then has a new state, which makes no difference if environments are reset at each epoch.
"""

from __future__ import annotations

import logging
from typing import Any

import cloudpickle

from rla_client.contract.errors import SnapshotError

_warned: set[str] = set()
_log = logging.getLogger("rla_client")


def pack_env(env: object) -> bytes:
    """Bytes from which `unpack_env` makes a copy.

    Raises:
        SnapshotError: the environment can neither be pickled nor be made again from a spec.
    """
    try:
        data: bytes = cloudpickle.dumps(env)
    except Exception as error:  # any environment may raise anything
        spec = getattr(env, "spec", None)
        if spec is None:
            message = f"the environment can neither be pickled ({error}) nor made again: it has no spec"
            raise SnapshotError(message) from error
        if repr(spec) not in _warned:
            _warned.add(repr(spec))
            _log.warning("%s cannot be pickled (%s); copies are made from its spec", env, error)
        data = cloudpickle.dumps(EnvOfSpec(spec))
    return data


def unpack_env(data: bytes) -> Any:  # noqa: ANN401
    """Unpickle the copy. This runs code of the environment: only for this user's own bytes."""
    return cloudpickle.loads(data)


def copy_env(env: object) -> object:
    """A copy that shares nothing with `env`."""
    return unpack_env(pack_env(env))


class EnvOfSpec:
    """Substitute for an environment in a pickle; loading makes the environment from its spec."""

    def __init__(self, spec: object) -> None:
        self.spec = spec

    def make(self) -> object:
        """Make the environment."""
        import gymnasium  # noqa: PLC0415

        return gymnasium.make(self.spec)

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        import gymnasium  # noqa: PLC0415

        return gymnasium.make, (self.spec,)


def env_to_save(env: Any) -> object:  # noqa: ANN401
    """`env` if it can be pickled, else its spec as an `EnvOfSpec`."""
    try:
        cloudpickle.dumps(env)
    except Exception:  # noqa: BLE001 - any environment may raise anything
        return EnvOfSpec(env.spec) if getattr(env, "spec", None) is not None else env
    return env
