"""`exp_manager.sync_log_file()`: this run goes to the master now, instead of at the next look.

Replication needs no call: the agent sends what changes by itself. The call puts a mark into the
stream; the agent passes it on with the next commit. Waiting asks the agent on its control socket whether
all of the item is on the master, as its files lie here; nothing of the agent's package is imported.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rla_client.contract.agent_process import ask
from rla_client.contract.paths import find_places
from rla_client.contract.protocol import REPLICATE_NOW, FrameKind, pack

if TYPE_CHECKING:
    from rla_client.run.run import Run

ASK_AGAIN_S = 0.1
ANSWER_S = 2.0  # for one question; then it is asked again


def replicate_now(run: Run | None, *, wait: bool = False, timeout: float = 60.0) -> bool:
    """Have a run replicated at once. Never raises because of the agent or the network.

    Args:
        run: the open run; None or one without an item has nothing to replicate.
        wait: return when everything recorded or written so far is on the master.
        timeout: seconds to wait at most.

    Returns:
        Without `wait` True: it was asked for. With it, whether all of the run's files are on the
        master; False at once where the run is not replicated.
    """
    outbox = None if run is None else run.outbox
    opening = None if run is None else run.opening
    if outbox is None or opening is None or not opening.table:
        return False
    if opening.master or opening.offline:
        return False
    deadline = time.monotonic() + timeout
    outbox.put(FrameKind.MARK, pack([REPLICATE_NOW, {}]), time.time())
    outbox.push()
    if not wait:
        return True
    if not outbox.flush(timeout, media=True):
        return False
    header = {"root": opening.root, "item": f"{opening.table}/{opening.index}"}
    while True:
        answer = ask(
            find_places().control_socket, header, min(ANSWER_S, max(0.0, deadline - time.monotonic()))
        )
        if answer is not None:
            found = answer.get("replicated")
            if found is None or found:
                return bool(found)
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(ASK_AGAIN_S, max(0.0, deadline - time.monotonic())))
