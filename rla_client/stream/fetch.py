"""Fetching of files from the master through the agent.

Pruned checkpoints, and runs begun on another machine, are fetched from the master. The client never speaks
SSH; it polls the agent on its control socket until the answer is there or the deadline has passed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.agent.agent_connection import ask
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import FETCH_KINDS, ArgumentError, FetchError
from rla_client.contract.sharded_checkpoint.folder import waiting_parts

TIMEOUT_VARIABLE = "RLA_FETCH_TIMEOUT_S"
FETCH_TIMEOUT_S = 600.0  # 60 GB at 100 MB/s
START_S = 10.0  # for an agent to come up
MOST_STARTS = 3  # of agents that end while they are asked: what is asked for may be what ends them
ANSWERS_S = 60.0  # for a living one to answer at all: its disk may hang, and the job would begin at 0
ANSWER_S = 2.0  # for one question; then it is asked again
SETTLE_S = 20.0  # for saves to become whole before a run is resumed
LOOKS_S = 60.0  # for one look at all of them, of which a hundred may wait; other ranks wait 120 s for rank 0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.02, 0.5  # between two questions


def fetch_timeout_s() -> float:
    """Seconds that a fetch may take: `RLA_FETCH_TIMEOUT_S`, else ten minutes.

    Raises:
        ArgumentError: the variable is no number of seconds.
    """
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        found = float(text) if text else FETCH_TIMEOUT_S
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise ArgumentError(f"{TIMEOUT_VARIABLE} must be a number of seconds above 0, not {text!r}")
    return found


def bring_back(path: Path, *, autostart: bool) -> None:
    """Fetch a pruned file; on return it is complete here.

    Args:
        path: where it was.
        autostart: start an agent where none runs.

    Raises:
        FetchError: no agent, no master, no such file there, or not in time.
    """
    absolute = Path(os.path.abspath(path))
    question = {"folder": str(absolute.parent), "name": absolute.name, "config": None}
    what = f"{path.name} was pruned here and must come from the master"
    ask_for_fetch(question, what, fetch_timeout_s(), start=_start(autostart=autostart))


def bring_sharded_back(path: Path, *, autostart: bool) -> None:
    """Fetch the pruned files of a sharded checkpoint; on return it is complete here.

    Args:
        path: its folder.
        autostart: start an agent where none runs.

    Raises:
        FetchError: see `bring_back`.
    """
    question = {"sharded": os.path.abspath(path), "config": None}
    what = f"{path.name} was pruned here and must come from the master"
    ask_for_fetch(question, what, fetch_timeout_s(), start=_start(autostart=autostart))


def bring_sharded(path: Path, order: int, root: str, config: Path | None, *, autostart: bool) -> None:
    """Fetch the files that this machine lacks of a sharded checkpoint that is complete on the master.

    Args:
        path: its folder, which need not be here.
        order: of its save; another save of that name is replaced.
        root: data root.
        config: names the master.
        autostart: start an agent where none runs.

    Raises:
        NotOnMasterError: the master does not have all of it.
        FetchError: see `bring_back`.
    """
    question = {
        "sharded": os.path.abspath(path),
        "order": order,
        "root": os.path.abspath(root),
        "config": None if config is None else os.path.abspath(config),
    }
    what = f"{path.name} must come from the master"
    ask_for_fetch(question, what, fetch_timeout_s(), start=_start(autostart=autostart))


def settle_parts(folder: Path, wait_s: float = 0.0, *, autostart: bool) -> None:
    """Have the agent check whether saves of which this machine has a part are complete on the master.

    Args:
        folder: of the checkpoints.
        wait_s: repeat so long while one is incomplete: another machine may be sending its part.
        autostart: start an agent where none runs.

    Raises:
        FetchError: see `bring_back`; their state is unknown then.
    """
    until = time.monotonic() + wait_s
    while waiting_parts(folder):
        question = {"settle": os.path.abspath(folder), "config": None}
        what = f"sharded checkpoints in {folder} may be whole on the master, which could not be asked"
        ask_for_fetch(question, what, LOOKS_S, start=_start(autostart=autostart))
        if time.monotonic() > until:
            break
        time.sleep(LONGEST_WAIT_S)


def _start(*, autostart: bool) -> Callable[[], bool] | None:
    return partial(start_agent, find_places()) if autostart else None


def ask_for_fetch(
    question: dict[str, Any], what: str, timeout_s: float, *, start: Callable[[], bool] | None
) -> dict[str, Any]:
    """Have the agent fetch something.

    Args:
        question: for the agent's fetching process.
        what: begins an error's message.
        timeout_s: deadline.
        start: starts an agent where none runs; None: the configuration lets none be started.

    Returns:
        The process's answer.

    Raises:
        StillWrittenError: the run is being written elsewhere.
        NotBroughtError: it is on the master, and cannot be fetched.
        NotOnMasterError: another machine has it and has not sent all of it.
        FetchError: see `bring_back`.
    """
    places = find_places()
    is_new = not agent_alive(places)
    if is_new and not (start is not None and start()):
        why = "" if start is not None else ", and AGENT.autostart: false in the configuration lets none start"
        raise FetchError(f"{what}: no agent is running here{why}; start one: rla-agent start --detach")
    began = heard = time.monotonic()
    wait, starts, may_start = FIRST_WAIT_S, 0, began + (START_S / 2 if is_new else 0.0)
    while True:
        left = began + timeout_s - time.monotonic()
        answer = ask(places.control_socket, {"fetch": question}, max(0.1, min(ANSWER_S, left)))
        now = time.monotonic()
        if answer is not None and "fetch" in answer:
            heard = now
            if answer["fetch"] == "done":
                return answer
            if answer["fetch"] == "failed":
                kind = next((kind for flag, kind in FETCH_KINDS.items() if answer.get(flag)), FetchError)
                raise kind(f"{what}: {answer.get('error')}")
        lives = agent_alive(places)
        if not lives and start is not None and starts < MOST_STARTS and now >= may_start:
            starts += 1
            if start():
                heard = time.monotonic()
            may_start = time.monotonic() + START_S / 2  # one that starts is not seen at once
        if now - heard > (ANSWERS_S if lives else START_S):
            raise FetchError(f"{what}: the agent does not answer; see: rla-agent status")
        if now - began > timeout_s:
            raise FetchError(
                f"{what}: not done after {timeout_s:g} s; the next request continues where this one stopped "
                f"({TIMEOUT_VARIABLE} sets the limit)"
            )
        time.sleep(min(wait, max(0.0, left)))
        wait = min(2 * wait, LONGEST_WAIT_S)
