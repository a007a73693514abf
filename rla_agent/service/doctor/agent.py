"""Findings about the running agent."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_agent.service.doctor.units import unit_findings
from rla_agent.service.lock_holder import describe_holder
from rla_client.contract import __version__
from rla_client.contract.agent.places import MAX_SOCKET_PATH_BYTES, NOWHERE, RUNTIME_VARIABLE

LEAST_VERSIONS = {
    "torch": ((2, 10), "torch.load(weights_only=True) runs code from the file before 2.10"),
    "msgpack": ((1, 2, 1), "earlier ones may crash after an error"),
}


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


def check_versions(around: Surroundings) -> Iterator[Finding]:
    """The running agent and this command, and libraries with known faults."""
    running = around.status["agent"]["version"] if around.status else __version__
    if running != __version__:
        what = f"the running agent is version {running}, installed is {__version__}"
        yield Finding("version-agent", "warning", what, "rla-agent restart")
    for name, (least, why) in LEAST_VERSIONS.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if tuple(int(part) for part in re.findall(r"\d+", found)[:3]) < least:
            wanted = ".".join(map(str, least))
            what = f"{name} {found}: {why}"
            yield Finding(f"version-{name}", "warning", what, f"pip install '{name}>={wanted}'")


def check_unit(around: Surroundings) -> Iterator[Finding]:
    """The installed unit: current, startable, the one that serves."""
    foreign = around.alive and not around.holder.get("service")
    return unit_findings(around.unit, around.user, lingers=around.lingers, foreign=foreign)
