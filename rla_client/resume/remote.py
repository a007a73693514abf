"""Going on with a run that another machine began: its newest checkpoint comes from the master.

The agent finds the newest run of this `run_id` on the master and brings it here. It is not written any
more: a new item begins, whose `parent` in run.json names it, with `chain` set; its checkpoint lies in the
new item too, so that the chain can be gone on with on a third machine. Queries show the chain as one run
(`rla_client.database.records`).

When the master or the agent is away, `resume='must'` raises and `resume='allow'` begins a new run with a
warning: training does not stand still because of the network, and nothing is lost by it, for the older
run stays as it is on the master. Who would rather wait than begin anew says `must`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.checkpoint.files import list_checkpoints
from rla_client.config.schema import Config
from rla_client.contract.agent_process import start_agent
from rla_client.contract.errors import FetchError, StillWrittenError
from rla_client.contract.files import replacing, write_atomic
from rla_client.contract.layout import CHECKPOINT, RESUME_FOLDER, RunIndex
from rla_client.contract.paths import find_places
from rla_client.resume.find import read_run_file
from rla_client.resume.resume import read_marks
from rla_client.run.current import warn
from rla_client.run.item import Item
from rla_client.run.state import read_resume_state
from rla_client.stream.messenger import ask_agent, fetch_timeout_s

SERIES = "checkpoint"
NO_ROWS = b'{"rows": 0, "outputs": {}}'  # of the new item, at the checkpoint that it begins with


@dataclass(frozen=True, slots=True)
class Chained:
    """Where a chain continues.

    Attributes:
        parent: the earlier run, now here too.
        time_step: of the checkpoint.
        state: what `save_checkpoint` stored beside it.
        link: for run.json's `parent`.
    """

    parent: Item
    time_step: int
    state: dict[str, Any]
    link: dict[str, Any]


def find_elsewhere(
    root: str, table: str, run_key: str, config: Config, *, must: bool, known: Item | None = None
) -> Chained | None:
    """Bring a run here that another machine began; None where there is none to continue.

    Args:
        root: data root.
        table: task table name.
        run_key: the user's name of the run.
        config: names the master.
        must: raise where it cannot be told.
        known: the unfinished run of that name that is here; only one that was begun later, which went
            on with it, counts then.

    Raises:
        StillWrittenError: the run is still being written on another machine.
        FetchError: with `must`, the master or the agent is away.
    """
    remote = config.remote_setting
    if not config.send_log_file or config.path is None or not remote.named:
        return None
    os.makedirs(root, exist_ok=True)
    absolute = os.path.realpath(root)
    question = {
        "config": str(config.path),
        "root": absolute,
        "table": table,
        "run_key": run_key,
        "series": SERIES,
        "known": "" if known is None else known.index.path,
    }
    what = f"whether the master has an unfinished run {run_key!r} of table {table!r} cannot be told"
    try:
        start = partial(start_agent, find_places(), config.path, config.agent.secrets(config.path))
        answer = ask_agent(
            {"resume": question}, what, fetch_timeout_s(), start=start if config.agent.autostart else None
        )
    except StillWrittenError:
        raise  # also with `allow`: two processes would write one run
    except FetchError as error:
        if must:
            raise
        then = (
            "A new run begins; resume='must' would have ended here instead"
            if known is None
            else "The run that is here continues"
        )
        warn(f"{error}. {then}")
        return None
    return None if answer.get("index") is None else _chained(absolute, table, answer)


def _chained(root: str, table: str, answer: Mapping[str, Any]) -> Chained | None:
    index = RunIndex.parse(str(answer["index"]))
    if index is None:
        return None
    parent, step = Item(root, table, index, index.opened), int(answer["time_step"])
    folder = Path(parent.folder(CHECKPOINT))
    link = {
        "run": index.path,
        "table": table,
        "time_step": step,
        "rows": read_marks(folder, SERIES, step).get("rows"),
        "chain": True,
        "run_id": answer.get("run_id"),
        "host": answer.get("host"),
    }
    return Chained(parent, step, read_resume_state(folder, SERIES, step) or {}, link)


def chain_here(item: Item) -> Chained | None:
    """Go on with a run of this machine in a new item, where it cannot be gone on with in place.

    Returns:
        None where no checkpoint of it is on the disk.
    """
    folder = Path(item.folder(CHECKPOINT))
    found = list_checkpoints(folder, SERIES)
    if not found:
        return None
    step = found[-1][0]
    content = read_run_file(item)
    link = {
        "run": item.index.path,
        "table": item.table,
        "time_step": step,
        "rows": read_marks(folder, SERIES, step).get("rows"),
        "chain": True,
        "run_id": content.get("run_id"),
        "host": content.get("host"),
    }
    return Chained(item, step, read_resume_state(folder, SERIES, step) or {}, link)


def take_checkpoint(chained: Chained, item: Item) -> None:
    """Give the new item the checkpoint that it begins with.

    Raises:
        OSError: the disk is full, and the like.
    """
    source, target = Path(chained.parent.folder(CHECKPOINT)), Path(item.folder(CHECKPOINT))
    name = f"{SERIES}_{chained.time_step}"
    found = source / f"{name}.pt"
    if not found.exists():
        found = source / f"{SERIES}-{chained.time_step}.pt"
    with replacing(target / f"{name}.pt", durable=False) as temp:
        try:
            os.link(found, temp)
        except OSError:
            shutil.copy2(found, temp)  # a file system without links
    below = target / RESUME_FOLDER
    below.mkdir(exist_ok=True)
    state = source / RESUME_FOLDER / f"{name}.state"
    if state.exists():
        write_atomic(below / f"{name}.state", state.read_bytes(), mode=state.stat().st_mode & 0o666)
    write_atomic(below / f"{name}.marks.json", NO_ROWS)
