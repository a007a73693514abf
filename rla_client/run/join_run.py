"""Joining of a live run by another process.

The run's address names it and the spool of its main process, whose stream there has everything else and shows
by its lock whether that process lives. The joining process gets a stream of its own, whose outputs are named
after its role: `progress.<role>.csv`. Rows, texts and media go into the run; checkpoints remain the main
process's. On another machine the address alone describes the run, and the process writes a part of it
(`run_part`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.agent.machine_name import machine_name
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError, NoSuchRunError
from rla_client.contract.layout import OTHER_RESULTS
from rla_client.contract.spool.opening import Opening, stream_opening
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import LOCK_NAME, writer_alive
from rla_client.run.current_logger import set_current, warn
from rla_client.run.open_stream import show_media
from rla_client.run.opening_frame import TOKEN_MARK, address_of, told_by, worker_opening
from rla_client.run.parameters.run_parameters import add_hyper_param
from rla_client.run.record.run_logger import Logger
from rla_client.run.resume.earlier_streams import is_open_here
from rla_client.run.run import Run
from rla_client.run.run_part import opening_here
from rla_client.run.temporary_item import TemporaryItem
from rla_client.stream.outbox import Outbox

if TYPE_CHECKING:
    from rla_client.run.run_data import RunData


ROLE = re.compile(r"(?!old-[0-9]+$)[A-Za-z][A-Za-z0-9_-]{0,63}")  # part of file names and of metrics' names


def living_run(address: str) -> Opening:
    """The opening of a live run by its main process.

    Raises:
        ArgumentError: this is no address.
        NoSuchRunError: no such run lives on this machine.
    """
    place = address.rpartition(TOKEN_MARK)[0] if TOKEN_MARK in address else address
    run, _, spool = place.partition("@")
    if not run or not os.path.isabs(spool):
        raise ArgumentError(f"{address!r} is no address of a run: take what rla_client.run_address() gives")
    for opening in _living(Path(spool)):
        if opening.run == run:
            return opening
    raise NoSuchRunError(
        f"the run {place} cannot be joined: no living process of this machine writes it\n"
        "hint: it may have ended, or belong to another machine; join it while its main process runs"
    )


def told_elsewhere(address: str) -> Opening | None:
    """The description of a run in an address of another machine; None for one of this machine.

    Raises:
        ArgumentError: it is no address.
    """
    told = told_by(address)
    return None if told is None or told[1] == machine_name(find_places()) else told[0]


def join_part(data: RunData, address: str, told: Opening, role: str) -> None:
    """Make a part of a run of another machine the open one of `data`, which is configured.

    Args:
        data: see `open_joined`.
        address: of the run.
        told: see `told_elsewhere`.
        role: of this process.

    Raises:
        NoSuchRunError: there can be none here.
    """
    _table, config, root = data.setup.configured()
    here = opening_here(told, machine_name(find_places()), root, config, master=data.setup.is_master_node)
    open_joined(data, address, here, role)


def living_run_of(root: str | os.PathLike[str], table: str, run_id: str) -> tuple[Opening, str] | None:
    """The live run of a `run_id` in a table, and its address; None without one on this machine."""
    places, real = find_places(), os.path.realpath(root)
    for opening in _living(places.spool):
        if (os.path.realpath(opening.root), opening.table, opening.run_key) == (real, table, run_id):
            return opening, address_of(opening, places)
    return None


def _living(spool: Path) -> Iterator[Opening]:
    """The openings of the main processes that write into a spool, newest first."""
    try:
        folders = [spool / name for name in stream_names(spool)]
    except OSError:
        return
    found = [(stream_opening(folder), folder) for folder in folders]
    mains = [(one, folder) for one, folder in found if one is not None and one.primary]
    for opening, folder in sorted(mains, key=lambda pair: pair[0].epoch, reverse=True):
        if is_open_here(folder / LOCK_NAME) or writer_alive(folder):
            yield opening


def check_role(role: str) -> str:
    """Check that a role can be part of names.

    Raises:
        ArgumentError: it cannot.
    """
    if not isinstance(role, str) or not ROLE.fullmatch(role):
        raise ArgumentError(
            f"a role begins with a letter and has at most 64 letters, digits, - and _; got {role!r:.100}"
        )
    return role


def join_run(data: RunData, address: str, role: str = "") -> None:
    """Join the run of an address, from this machine or another one; `data` is configured.

    Raises:
        ArgumentError: this is no address, or no role.
        NoSuchRunError: no such run lives on this machine, or there can be no part of it here.
    """
    if role:
        check_role(role)
    told = told_elsewhere(address)
    if told is None:
        open_joined(data, address, living_run(address), role)
    else:
        join_part(data, address, told, role)


def open_joined(data: RunData, address: str, opening: Opening, role: str) -> None:
    """Make a living run the open one of `data`, which has no item of its own.

    Args:
        data: configured for the run's table and data root.
        address: of the run.
        opening: see `living_run`.
        role: of this process; empty: by its rank or its number.

    Raises:
        NoSuchRunError: the run's folder is gone, or cannot be written.
    """
    own = worker_opening(opening, role=role, ends_part=True)
    if own is None:
        raise NoSuchRunError(
            f"the run {opening.title} cannot be joined: {opening.log_folder} cannot be written\n"
            "hint: it may have been removed or moved"
        )
    setup, settings = data.setup, data.setup.configured()[1].agent
    outbox = Outbox(
        find_places(),
        own,
        settings,
        as_worker=lambda: worker_opening(opening),
        config_path=None if opening.config is None else Path(opening.config),
    )
    logger = Logger(opening.log_folder, opening.sinks, outbox, clock=data.clock)
    logger.show_media = show_media
    logger.address = address
    described = {"sinks": sorted(opening.sinks), "opening": opening.to_fields(), "all_ranks": True}
    logger.for_workers = json.dumps({**described, "address": address})
    logger.take_parameters = partial(add_hyper_param, data)
    data.item = None
    data.disabled = TemporaryItem(
        setup.get_task_table_name(), "", setup.ipaddr, f"role {own.label}", autostart=settings.autostart
    )
    data.run = Run(logger, None, settings)
    setup.record_date = None
    set_current(logger, data.scope)
    from rla_client.media.recording_target import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    results = Path(opening.folder(OTHER_RESULTS)) if OTHER_RESULTS in opening.folders else None
    bind(RecordingTarget(results, outbox, warn, below=(own.label,)))
