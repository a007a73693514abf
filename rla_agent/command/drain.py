"""`rla-agent drain`: chooses between waiting for the serving agent and taking the spool in here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rla_agent.service.drain import DRAIN_HOLDER, Drained, RootMap, spool_places, take_in, wait_durable
from rla_agent.store.lock import describe_holder, read_holder
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent_process import agent_alive
from rla_client.contract.errors import AgentRunningError, ArgumentError
from rla_client.contract.paths import Places, is_of_this_machine, other_states
from rla_client.contract.segments import stream_names

EXIT_DONE, EXIT_LEFT = 0, 1


def drain_spool(
    own: Places, spool: Path | None, mappings: Sequence[str], settings: AgentConfig
) -> tuple[list[str], int]:
    """Drain a spool, the own one by default.

    Args:
        own: places of this environment.
        spool: another spool or state folder.
        mappings: `OLD=NEW` for data roots that lie elsewhere now.
        settings: the AGENT section.

    Returns:
        Lines for the user, and the exit code: 0 when nothing is left.

    Raises:
        ArgumentError: a mapping cannot be meant.
        RlaError: the spool cannot be taken in.
    """
    roots = parse_roots(mappings)
    if spool is None:
        own.create()
        places, folder = own, own.spool
    else:
        places, folder = spool_places(spool)
    ours = _same_folder(folder, own.spool)
    if ours:
        places, folder = own, own.spool  # also where a bind mount leads to it
    if agent_alive(places):
        if read_holder(places).get("service") == DRAIN_HOLDER:
            raise AgentRunningError(describe_holder(places))
        if mappings:
            message = "an agent serves this spool; stop it before mapping data roots: rla-agent stop"
            raise ArgumentError(message)
        return _wait(places)
    if not ours and not (folder.name == "spool" and folder.parent in _earlier_states(own)):
        roots = RootMap(roots.roots, check=False)
    return _told(folder, take_in(places, folder, roots, settings))


def _earlier_states(own: Places) -> list[Path]:
    """State folders that this machine had under other host names: their data roots are the ones named."""
    return [Path(os.path.realpath(state)) for state in other_states(own.state) if is_of_this_machine(state)]


def _same_folder(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def parse_roots(mappings: Sequence[str]) -> RootMap:
    """Read `OLD=NEW` texts.

    Raises:
        ArgumentError: not of that form, OLD not absolute, or NEW not a folder.
    """
    roots: dict[str, str] = {}
    for mapping in mappings:
        old, sign, new = mapping.partition("=")
        if not sign or not os.path.isabs(old) or not os.path.isdir(new):
            message = f"--data-root {mapping}: must be OLD=NEW, an absolute path and a folder that is here"
            raise ArgumentError(message)
        roots[os.path.normpath(old)] = os.path.realpath(new)
    return RootMap(roots)


def _wait(places: Places) -> tuple[list[str], int]:
    names = stream_names(places.spool)
    left = wait_durable(places, names, None)
    lines = [f"an agent serves this spool: {len(names) - len(left)} streams are durable"]
    lines += [f"left: {name}; see: rla-agent status" for name in sorted(left)]
    return lines, EXIT_LEFT if left else EXIT_DONE


def _told(folder: Path, result: Drained) -> tuple[list[str], int]:
    lines = [f"{folder}: {len(result.taken)} streams stored"]
    if result.broken:
        lines.insert(0, f"agent.db was damaged and is now {result.broken}; positions came from the spool")
    if result.live:
        lines.append(f"{len(result.live)} streams are still being written; durable up to now")
    lines += [f"left: {name}: {why}" for name, why in sorted(result.left.items())]
    if any("is not here" in why or "another folder here" in why for why in result.left.values()):
        lines.append("rows of data roots that will not come back are given up by: rla-agent forget")
    return lines, EXIT_LEFT if result.left else EXIT_DONE
