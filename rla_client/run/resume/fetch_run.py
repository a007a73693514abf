"""Fetch of another machine's run in order to resume it.

Its last checkpoint comes from the master: the agent finds the newest run of this `run_id` there and brings it
here.
"""

from __future__ import annotations

import os
from functools import partial

from rla_client.config.schema import Config
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import FetchError, NotBroughtError, StillWrittenError
from rla_client.contract.run_index import RunIndex
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.resume.chain import Chained, chain_from
from rla_client.run.resume.resume_point import over_text
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.stream.fetch import ask_for_fetch, fetch_timeout_s


def find_elsewhere(
    root: str, table: str, run_key: str, config: Config, *, must: bool, known: ItemFolders | None = None
) -> Chained | None:
    """Fetch a run that another machine began; None where there is none to continue.

    Args:
        root: data root.
        table: task table name.
        run_key: the user's name of the run.
        config: names the master.
        must: raise where that is unknown.
        known: the unfinished run of that name here; then only a run counts that was begun later and
            continued it.

    Raises:
        StillWrittenError: the run is still being written on another machine.
        NotBroughtError: it is on the master, and the disk here has no room, or its checkpoint is damaged.
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
        "series": CHECKPOINT_NAME,
        "known": "" if known is None else known.index.path,
    }
    what = f"no run {run_key!r} to continue in table {table!r} comes from the master"
    try:
        start = partial(start_agent, find_places(), config.path, config.agent.secrets(config.path))
        answer = ask_for_fetch(
            {"resume": question}, what, fetch_timeout_s(), start=start if config.agent.autostart else None
        )
    except (StillWrittenError, NotBroughtError):
        raise  # also with `allow`: two processes would write one run, or what is there would be done again
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
    if answer.get("over") and not must:
        warn(f"{over_text(run_key, str(answer['over']))}. It is on the master, and a new run begins")
    index = None if answer.get("index") is None else RunIndex.parse(str(answer["index"]))
    if index is None:
        return None
    return chain_from(ItemFolders(absolute, table, index, index.opened), int(answer["time_step"]), answer)
