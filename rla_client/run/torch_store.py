"""The default store of torch's process group, as a place for small texts between the ranks of a job.

All ranks reach it, on whatever machine they are, once `init_process_group` has returned. Nothing here waits
for a key: who asks gets what is there. torch is not imported; where the program has not done so, there is no
store.
"""

from __future__ import annotations

import sys
from typing import Any


def has_store() -> bool:
    """Whether the process group is there."""
    return _store() is not None


def default_store() -> Any:  # noqa: ANN401 - torch's
    """The store itself; None where there is none."""
    return _store()


def put(key: str, text: str) -> None:
    """Leave a text for the other ranks; does nothing without a store, or where it is gone."""
    store = _store()
    if store is None:
        return
    try:
        store.set(key, text)
    except RuntimeError as error:  # torch's errors of a store: its process is gone
        _say("told nothing to", error)


def look(key: str) -> str:
    """The text under a key; empty where there is none (yet), without a store, or where that is gone."""
    store = _store()
    if store is None:
        return ""
    try:
        found = store.get(key) if store.check([key]) else b""
    except RuntimeError as error:
        _say("cannot be asked", error)
        return ""
    return bytes(found).decode("utf-8", "replace")


def _store() -> Any:  # noqa: ANN401 - torch's
    distributed = sys.modules.get("torch.distributed")
    module = sys.modules.get("torch.distributed.distributed_c10d")
    get = getattr(module, "_get_default_store", None)
    if distributed is None or get is None or not distributed.is_available():
        return None
    return get() if distributed.is_initialized() else None


def _say(what: str, error: RuntimeError) -> None:
    import logging  # noqa: PLC0415 - not at import of the package

    reason = str(error).partition("\n")[0]
    logging.getLogger("rla_client").warning("the store of torch's process group %s: %s", what, reason)
