"""Loading of sharded checkpoints.

The newest complete one is loaded, at any number of ranks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.checkpoint.loading import load_file
from rla_client.checkpoint.pickle_trust import pickle_problem
from rla_client.checkpoint.rank_group import RankGroup
from rla_client.contract.errors import ArgumentError, FetchError, NotOnMasterError, RlaError
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE, rank_file_name
from rla_client.contract.sharded_checkpoint.folder import read_whole, receipts_in
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.records import Whole
from rla_client.contract.sharded_checkpoint.status import sharded_status

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0  # between two requests to the master: each is a login
_log = logging.getLogger("rla_client")


@dataclass(frozen=True, slots=True)
class ChosenCheckpoint:
    """A complete checkpoint, or, with None as `step`, the reason in `problem`.

    Attributes:
        step: its time-step.
        path: its folder.
        problem: empty where there is one.
        order: of its save.
        pruned: the master has all of it, and this machine has not.
        host: of the machine that found it.
    """

    step: int
    path: Path | None
    problem: str = ""
    order: int = 0
    pruned: bool = False
    host: str = ""


def find_whole(folder: Path, name: str, step: int | None, *, autostart: bool) -> ChosenCheckpoint:
    """The whole checkpoint of a time-step, or the one saved last; a pruned one is fetched."""
    found = choose_whole(folder, name, step)
    problem = bring_here(found, autostart=autostart)
    return ChosenCheckpoint(0, None, problem) if problem else found


def choose_whole(folder: Path, name: str, step: int | None) -> ChosenCheckpoint:
    """The complete checkpoint of a time-step, or the one saved last; it may be on the master alone.

    Saves that are ready are published first.
    """
    with suppress(OSError):  # a folder that may only be read
        publish_all(folder)
    try:
        found = sharded_status(folder, name)
    except OSError as error:
        return ChosenCheckpoint(0, None, f"{folder} cannot be read: {error}")
    whole = sorted((one for one in found if one.whole), key=lambda one: one.order)
    for one in reversed(whole):
        if step in {None, one.step}:
            return ChosenCheckpoint(one.step, one.path, "", one.order, one.pruned, os.uname().nodename)
    wanted = f"{name!r}" if step is None else f"{name!r} at time-step {step}"
    steps = ", ".join(str(one.step) for one in whole) or "none"
    text = f"no whole sharded checkpoint {wanted} in {folder}; time-steps there: {steps}"
    return ChosenCheckpoint(0, None, "; ".join([text, *(str(one) for one in found if not one.whole)]))


def bring_here(found: ChosenCheckpoint, *, autostart: bool) -> str:
    """Fetch a pruned one; returns the failure (so that all ranks raise, and not one alone)."""
    if found.path is not None and found.pruned:
        from rla_client.stream.fetch import bring_sharded_back  # noqa: PLC0415 - rarely needed

        try:
            bring_sharded_back(found.path, autostart=autostart)
        except FetchError as error:
            return str(error)
    return ""


def bring_save(
    path: Path, found: ChosenCheckpoint, root: str, config: Path | None, *, autostart: bool
) -> str:
    """Fetch a checkpoint that rank 0 found on another machine; returns the failure.

    It waits for files that the other machine's agent still has to send, as long as a fetch may take.

    Args:
        path: its folder here, which may have all files, this machine's shards, another save, or be missing.
        found: what rank 0 found.
        root: data root.
        config: names the master.
        autostart: start an agent where none runs.
    """
    from rla_client.stream.fetch import bring_sharded, fetch_timeout_s  # noqa: PLC0415 - rarely needed

    limit_s, pause_s, began = fetch_timeout_s(), FIRST_PAUSE_S, time.monotonic()
    late = (
        f"; it is on {found.host}, whose agent has not sent all of it in {limit_s:g} s "
        "(there: rla-agent replicate status)"
    )
    while not _is_here(path, found.order):
        try:
            bring_sharded(path, found.order, root, config, autostart=autostart)
            break
        except NotOnMasterError as error:
            if found.pruned:
                return str(error)
            if time.monotonic() - began + pause_s > limit_s:
                return f"{error}{late}"
            if pause_s == FIRST_PAUSE_S:
                who = f"the agent of {found.host}"
                _log.warning("%s; waiting up to %g s for %s to send it", error, limit_s, who)
        except FetchError as error:  # the last question may have taken too long, too
            is_late = pause_s > FIRST_PAUSE_S and time.monotonic() - began >= limit_s
            return f"{error}{late}" if is_late else str(error)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return "" if _is_here(path, found.order) else f"{path} is not the checkpoint that rank 0 loads"


def _is_here(path: Path, order: int) -> bool:
    whole = read_whole(path)
    return whole is not None and whole.order == order


def load_whole(into: dict[str, Any], path: Path, ranks: RankGroup, *, run: str, trust: bool) -> Any:  # noqa: ANN401 - what was saved
    """Load a complete checkpoint in place; all ranks call it.

    Args:
        into: the state to fill: tensors of the right shapes, on the present devices and meshes.
        path: its folder.
        ranks: of this job.
        run: identity of the loading run, whose own saves here may have any objects.
        trust: load objects, whoever wrote them.

    Returns:
        The `per_rank` of this rank; None where there was none, or another number of ranks.

    Raises:
        NoCheckpointError: it is not whole.
        UntrustedCheckpointError: it holds objects, is not this run's own, and `trust` is False.
        ArgumentError: `into` does not fit.
    """
    whole = read_whole(path)  # where it is None, load_into fails on all ranks together
    ours = whole is not None and run and run == whole.save.run and was_written_here(path, whole)
    trusted = trust or bool(ours and pickle_problem(path / WHOLE_FILE) is None)
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415 - slow to import

    from rla_client.checkpoint.dcp_reader import load_into  # noqa: PLC0415 - needs torch

    try:
        load_into(into, path, ranks.group, trust=trusted)
    except CheckpointException as error:
        raise _first(error) from error
    own = rank_file_name(ranks.rank)
    if (
        whole is None
        or whole.save.world != ranks.world
        or not any(entry.file == own for entry in whole.files)
    ):
        return None
    return load_file(path / own, trust=trusted)


def was_written_here(path: Path, whole: Whole) -> bool:
    """Whether all ranks wrote into this folder, so that no file came from the master alone."""
    written = {receipt.rank for receipt in receipts_in(path) if not receipt.beside}
    return len(written) == whole.save.world


def _first(error: Any) -> BaseException:  # noqa: ANN401 - a CheckpointException
    """The first failure of the ranks as our error."""
    failures: Sequence[Any] = [failure[0] for _, failure in sorted(error.failures.items())]
    for found in failures:
        if isinstance(found, RlaError):
            return found
    return ArgumentError(f"the checkpoint does not fit: {failures[0] if failures else error}")
