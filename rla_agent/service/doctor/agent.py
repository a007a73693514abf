"""Findings about the running agent."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_agent.service.lock_holder import describe_holder
from rla_client.contract.agent.places import MAX_SOCKET_PATH_BYTES, NOWHERE, RUNTIME_VARIABLE


def check_socket(around: Surroundings) -> Iterator[Finding]:
    """A path that fits, and sockets where a living agent has bound them."""
    path = around.places.runtime / "control.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        what = f"the socket path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes"
        yield Finding("socket-path", "warning", what, f"set {RUNTIME_VARIABLE} to a shorter folder")
    if not around.alive:
        return
    if around.places.sockets == NOWHERE:
        what = "the agent found no folder for its sockets; rows are stored, but status and flush do not work"
        fix = f"set {RUNTIME_VARIABLE} to a short folder of yours, then: rla-agent restart"
        yield Finding("socket-nowhere", "fault", what, fix)
        return
    gone = [path for path in (around.places.data_socket, around.places.control_socket) if not path.exists()]
    if gone:
        what = f"the agent's socket {gone[0]} was deleted under it; status and flush do not work"
        yield Finding("socket-missing", "fault", what, "rla-agent restart")
    elif around.status is None:
        pid = around.agent_pid
        what = f"the agent ({describe_holder(around.places)}) does not answer"
        fix = f"rla-agent logs; then (loses nothing): kill -9 {pid} && rla-agent start --detach"
        if pid is None:
            fix = "it runs outside this container; run there: rla-agent restart"
        yield Finding("agent-silent", "fault", what, fix)


def check_stopped(around: Surroundings) -> Iterator[Finding]:
    """The marker that `rla-agent stop` left."""
    if around.places.stopped_marker.exists() and not around.alive:
        what = "the agent was stopped on purpose: training processes start none, rows wait in the spool"
        yield Finding("stopped", "warning", what, "rla-agent start --detach")


def check_problems(around: Surroundings) -> Iterator[Finding]:
    """What the running agent says of itself."""
    for problem in around.status["problems"] if around.status else ():
        yield Finding("agent-problem", "warning", problem["what"], problem["fix"])
    for problem in around.replication:
        yield Finding("replication-problem", "warning", problem["what"], problem["fix"])
