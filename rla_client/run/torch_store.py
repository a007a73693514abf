"""Text exchange between ranks by torch's default store.

The default store of the process group is reachable by all ranks on all machines once `init_process_group` has
returned. Reads never wait for a key. torch is not imported; where the program has not imported it, there is
no store. A text that is put before the process group exists is put later by a thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

LOOK_S = 0.5  # between two checks for a process group
COMES_S = 3600.0  # after so long no process group is expected
_untold: dict[str, str] = {}  # key → text that waits for the process group
_teller: threading.Thread | None = None


def has_store() -> bool:
    """Whether the process group exists."""
    return _store() is not None


def may_come() -> bool:
    """Whether the program may still make a process group: it has imported torch."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and not has_store()


def default_store() -> Any:  # noqa: ANN401 - torch's
    """The store itself; None where there is none."""
    return _store()


def put(key: str, text: str) -> None:
    """Put a text for the other ranks: now, or once the process group exists, if it may still be made."""
    store = _store()
    if store is None:
        if may_come() or "MASTER_ADDR" in os.environ:  # it has torch's rendezvous address
            _put_later(key, text)
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


def _put_later(key: str, text: str) -> None:
    global _teller  # noqa: PLW0603 - one for all texts
    _untold[key] = text
    if _teller is None or not _teller.is_alive():  # a forked child has none
        _teller = threading.Thread(target=_tell, name="rla-store", daemon=True)
        try:
            _teller.start()
        except RuntimeError as error:  # no more threads: the other channels remain
            _say("is told nothing", error)


def _tell() -> None:
    end = time.monotonic() + COMES_S
    while _untold and time.monotonic() < end:
        time.sleep(LOOK_S)
        if has_store():
            for key in list(_untold):
                put(key, _untold.pop(key))


def _store() -> Any:  # noqa: ANN401 - torch's
    distributed = sys.modules.get("torch.distributed")
    module = sys.modules.get("torch.distributed.distributed_c10d")
    get = getattr(module, "_get_default_store", None)
    if distributed is None or get is None or not distributed.is_available():
        return None
    try:
        return get() if distributed.is_initialized() else None
    except ValueError:  # it ended between the two
        return None


def _say(what: str, error: RuntimeError) -> None:
    import logging  # noqa: PLC0415 - not at import of the package

    reason = str(error).partition("\n")[0]
    logging.getLogger("rla_client").warning("the store of torch's process group %s: %s", what, reason)
