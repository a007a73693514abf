"""Random-number control of a repeatable run.

`set_seed` seeds the generators that a training usually draws from. `capture_rng` and `restore_rng` carry
their states through a snapshot, so that a resumed run draws the same numbers as an uninterrupted one.
numpy's SeedSequence derives the seeds of sampler workers from (seed, worker, epoch), so they do not depend
on which process ran before.

torch and tensorflow are seeded only if the program has imported them already. `limits()` lists what no
call can make repeatable; an experiment's text log shows it with the seed.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from typing import Any, SupportsIndex, TypeAlias

from rla_client.contract.errors import ArgumentError

SEEDS = 4294967294  # numpy's legacy generator takes 32 bits; garage's number
CUBLAS_WORKSPACE = ":4096:8"  # the setting with which cuBLAS promises the same bits each time

RngState: TypeAlias = dict[str, Any]

_current: dict[str, int] = {}


def set_seed(seed: SupportsIndex) -> None:
    """Seed python, numpy, and torch and tensorflow where they are imported.

    torch also gets deterministic algorithms (with a warning, not an error, where an operation
    has none), deterministic cudnn and no cudnn benchmarking.

    Args:
        seed: any whole number; its remainder by 4294967294 is used and returned by `get_seed`.

    Raises:
        ArgumentError: seed is not a whole number.
    """
    value = _check_seed(seed)
    _note_limits(value)
    _seed_all(value)


def _seed_all(value: int) -> None:
    import numpy as np  # noqa: PLC0415 - keeps the package's import light

    _current["seed"] = value
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002 - the global generator is what user code draws from
    _seed_torch(value)
    _seed_tensorflow(value)


def get_seed() -> int | None:
    """The seed of the last `set_seed`; None before the first."""
    return _current.get("seed")


def derive_seed(seed: int, *keys: int) -> int:
    """A 32-bit seed that depends on all of (seed, *keys), equal on every machine."""
    import numpy as np  # noqa: PLC0415

    return int(np.random.SeedSequence((seed, *keys)).generate_state(1)[0])


def seed_worker_process(seed: int) -> None:
    """Seed the global generators of a sampler worker, without touching the experiment's seed."""
    import numpy as np  # noqa: PLC0415

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def capture_rng() -> RngState:
    """States of all generators that `set_seed` seeds, for `restore_rng`."""
    import numpy as np  # noqa: PLC0415

    state: RngState = {
        "seed": get_seed(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [one.numpy().tobytes() for one in torch.cuda.get_rng_state_all()]
    if "tensorflow" in sys.modules:
        state["tensorflow"] = _capture_tensorflow()
    return state


def restore_rng(state: RngState) -> None:
    """Restore every generator to its state at `capture_rng`."""
    seed = state.get("seed")
    if seed is not None:
        _seed_all(_check_seed(seed))  # also the settings of torch, which no state holds
    restore_generators(state)


def restore_generators(state: RngState) -> None:
    """Restore only the generators, without `set_seed` and its settings."""
    import numpy as np  # noqa: PLC0415

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    if "torch" in state:
        _restore_torch(state)
    if state.get("tensorflow") is not None:
        _restore_tensorflow(state["tensorflow"])


def limits() -> tuple[str, ...]:
    """Sources of chance that the program cannot control, one line each."""
    notes = [
        "order of sets and dicts keyed by text hashes needs PYTHONHASHSEED set before python starts"
        if os.environ.get("PYTHONHASHSEED") in {None, "random"}
        else "",
        "threads and processes of your own that share a generator draw in any order",
        "other machines, library versions or numbers of threads may round floats differently",
    ]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        notes.append("CUDA operations without a deterministic form warn and stay as they are")
        if os.environ.get("CUBLAS_WORKSPACE_CONFIG") is None:
            notes.append(f"cuBLAS needs CUBLAS_WORKSPACE_CONFIG={CUBLAS_WORKSPACE} before CUDA starts")
    if "tensorflow" in sys.modules:
        notes.append(
            "random operations inside a tf.function continue counting; a snapshot does not restore them"
        )
        notes.append("tensorflow's GPU operations need tf.config.experimental.enable_op_determinism()")
    return tuple(note for note in notes if note)


def _note_limits(seed: int) -> None:
    from rla_client.launcher.outputs import current_outputs  # noqa: PLC0415 - torch-free, but not light

    if current_outputs() is None:
        return
    from rla_client import logger  # noqa: PLC0415

    for line in (f"seed {seed}; it cannot make repeatable:", *(f"  - {note}" for note in limits())):
        logger.get_current().log(line, echo=False)


def _check_seed(seed: object) -> int:
    try:
        value = int(seed.__index__())  # type: ignore[attr-defined]  # numpy integers count too
    except (AttributeError, TypeError) as error:
        raise ArgumentError(f"a seed is a whole number, got {type(seed).__name__}") from error
    return value % SEEDS


def _seed_torch(seed: int) -> None:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_available() and not torch.cuda.is_initialized():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def _seed_tensorflow(seed: int) -> None:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    if hasattr(tensorflow, "random") and hasattr(tensorflow.random, "set_seed"):
        tensorflow.random.set_seed(seed)
    else:
        tensorflow.compat.v1.set_random_seed(seed)


def _restore_torch(state: RngState) -> None:
    import torch  # noqa: PLC0415

    def tensor(data: bytes) -> torch.Tensor:
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    torch.set_rng_state(tensor(state["torch"]))
    if "cuda" not in state:
        return
    if torch.cuda.is_available() and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all([tensor(one) for one in state["cuda"]])
    else:
        warnings.warn("the snapshot's CUDA generators do not fit this machine's devices", stacklevel=2)


def _capture_tensorflow() -> dict[str, Any]:
    """States of tensorflow's global generator and of the one that seeds eager operations."""
    import tensorflow as tf  # noqa: PLC0415

    seeds = _tensorflow_seeds()
    generator = tf.random.get_global_generator().state.numpy() if hasattr(tf.random, "Generator") else None
    return {"seeds": None if seeds is None else seeds.getstate(), "generator": generator}


def _restore_tensorflow(state: dict[str, Any]) -> None:
    import tensorflow as tf  # noqa: PLC0415

    if state["generator"] is not None:
        tf.random.get_global_generator().reset(state["generator"])
    seeds = _tensorflow_seeds()
    if seeds is not None and state["seeds"] is not None:
        seeds.setstate(state["seeds"])


def _tensorflow_seeds() -> random.Random | None:
    """Generator of the seeds of eager operations; None before `tf.random.set_seed`."""
    try:
        from tensorflow.python.eager import context  # noqa: PLC0415

        found = context.context()._rng  # noqa: SLF001 - no public way leads to it
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, random.Random) else None
