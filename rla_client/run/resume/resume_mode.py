"""Choice of the run that a `run_id` continues.

When the master or the agent cannot be reached, `must` raises and `allow` begins a new run with a warning:
training does not stop because of the network, and nothing is lost, since the older run stays unchanged on the
master. Users who would rather wait than begin anew choose `must`. Where later saves of a local run wait for
parts of other machines, both raise: only the master knows whether these saves are complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, FetchError, RlaError
from rla_client.contract.layout import LOG
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.open_stream import opened_here
from rla_client.run.resume.chain import Chained, chain_here, take_checkpoint
from rla_client.run.resume.earlier_streams import ENDS_S, StillWritingError
from rla_client.run.resume.fetch_run import find_elsewhere
from rla_client.run.resume.find_run import find_here, read_run_file
from rla_client.run.resume.resume_point import ResumePoint, is_over, over_text, prepare
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.run_mode import mode

if TYPE_CHECKING:
    from rla_client.run.configure import RunSetup


def where_to_continue(setup: RunSetup, run_id: str) -> tuple[ResumePoint | None, Chained | None]:
    """Where the run of this run_id continues, by the setup's `resume_mode`.

    A finished run continues at its last checkpoint, too: a job that was stopped and exited cleanly looks like
    one that reached its end. Without a checkpoint it is left unchanged.

    Returns:
        In place, in the run of this machine; or in a new item: from a newer run of another machine, or with
        `allow` from what is on the disk. Neither where a new run begins.

    Raises:
        RlaError: `resume='must'`, and no agent takes in what waits in the spool, or the run cannot be
            continued in place, or a living process of this machine writes it.
        ArgumentError: `resume='must'`, and there is none here or on the master.
        FetchError: see `find_elsewhere` and `prepare`.
    """
    try:
        here = _run_here(setup, run_id)
    except StillWritingError as error:
        raise_or_warn(setup, error, "A new run begins")
        return None, None
    chained = _newer_elsewhere(setup, run_id, here)
    if here is not None and chained is None and is_over(here):
        raise_or_warn(setup, ArgumentError(over_text(run_id, here.index.path)), "A new run begins")
        return None, None
    if here is None or chained is not None:
        return None, chained
    table, config, root = setup.configured()
    try:
        return prepare(root, table, here, None, CHECKPOINT_NAME, autostart=config.agent.autostart), None
    except FetchError:
        raise  # a new run would miss saves that only the master knows to be complete
    except (RlaError, OSError) as error:
        chained = chain_here(here)
        step = "" if chained is None else f", from {CHECKPOINT_NAME}_{chained.time_step}.pt"
        raise_or_warn(setup, error, f"A new run begins{step}")
        return None, chained


def _run_here(setup: RunSetup, run_id: str) -> ItemFolders | None:
    """The newest run of this run_id on this machine; with `allow`, a living process of it may end first.

    None for one that this process itself has finished: a program may open several in turn under one name.

    Raises:
        RlaError: `resume='must'`, and one waits in the spool for want of an agent.
        StillWritingError: a living process writes it.
    """
    table, config, root = setup.configured()
    patience_s = 0.0 if setup.resume_mode == "must" else ENDS_S
    autostart = config.agent.autostart
    found, late = find_here(root, table, run_id, autostart=autostart, any_state=True, ends_s=patience_s)
    if late:
        message = f"the run {run_id!r} is still in the spool and cannot be continued: {late}"
        raise_or_warn(setup, RlaError(message), "A new run begins")
    if found is not None and found.folder(LOG) in opened_here:
        return found if read_run_file(found).get("state") != "finished" else None
    return found


def raise_or_warn(setup: RunSetup, error: Exception, then: str) -> None:
    """Warn of a failure of agent or disk with `resume='allow'`, raise it with `must`."""
    if setup.resume_mode == "must":
        raise error
    warn(f"{error}. {then}; resume='must' would have ended here instead")


def _newer_elsewhere(setup: RunSetup, run_id: str, here: ItemFolders | None) -> Chained | None:
    """The run of this run_id that another machine began, with its checkpoint fetched.

    Raises:
        ArgumentError: `resume='must'`, and there is none here or on the master.
        FetchError: see `find_elsewhere`.
    """
    table, config, root = setup.configured()
    must = setup.resume_mode == "must" and here is None
    found = None
    if not setup.is_master_node and mode() != "offline":
        found = find_elsewhere(root, table, run_id, config, must=must, known=here)
    if found is None and must:
        where = " or on the master" if config.send_log_file else ""
        raise ArgumentError(
            f"resume='must', but table {table!r} of {root}{where} has no run {run_id!r} to continue"
        )
    return found


def with_checkpoint(setup: RunSetup, chained: Chained, item: ItemFolders) -> Chained | None:
    """Put the checkpoint of an earlier run into the new item; None, after a warning, where that fails.

    Raises:
        OSError: `resume='must'`, and the disk is full, or the like.
    """
    try:
        take_checkpoint(chained, item)
    except OSError as error:
        raise_or_warn(setup, error, "A new run begins")
        return None
    return chained
