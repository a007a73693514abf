"""States of the global random generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla_client.contract.process.loaded_modules import loaded


def capture_random_state() -> dict[str, Any]:
    """States of python's, numpy's and torch's (CUDA too) global generators, as plain data."""
    import random  # noqa: PLC0415 - not at import of the package

    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(internal), gauss]}
    numpy, torch = loaded("numpy"), loaded("torch")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, keys.tobytes(), int(position), int(has_gauss), float(cached)]
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [entry.numpy().tobytes() for entry in torch.cuda.get_rng_state_all()]
    return state


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Bring the generators back to a captured state."""
    if "python" in state:
        import random  # noqa: PLC0415 - not at import of the package

        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal), gauss))
    if "numpy" in state:
        import numpy as np  # noqa: PLC0415 - it was in use when the state was taken

        name, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, np.frombuffer(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    if "torch" in state:
        import torch  # noqa: PLC0415

        torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
        if "cuda" in state and torch.cuda.is_available():
            entries = [torch.frombuffer(bytearray(entry), dtype=torch.uint8) for entry in state["cuda"]]
            if len(entries) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(entries)
