"""Findings about outdated versions."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract import __version__

LEAST_VERSIONS = {
    "torch": ((2, 10), "torch.load(weights_only=True) runs code from the file before 2.10"),
    "msgpack": ((1, 2, 1), "earlier ones may crash after an error"),
}


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
