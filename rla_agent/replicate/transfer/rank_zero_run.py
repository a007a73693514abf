"""Description of rank 0's run, read from the master for ranks of another machine."""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from rla_agent.replicate import registry, target_config
from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.backend.session import TargetSession, listing_or_empty, read_json
from rla_client.config.schema import load_config
from rla_client.contract.errors import FetchError
from rla_client.contract.layout import JOBS_FOLDER

MAX_JOB_FILE_BYTES: Final = 1 << 20
WAIT_S: Final = 20.0  # for rank 0 to open its run; a login costs more than a check
LOOK_S: Final = 0.5
OLD_S: Final = 7 * 86400.0  # nobody joins a job of so long ago (`run.rank_meeting.FRESH_S`)
MAX_SWEPT: Final = 100  # in one meeting, which should not take long
_NAME: Final = re.compile(r"[0-9a-f]{24}\.json")
_log = logging.getLogger("rla_agent.replicate.transfer.rank_zero_run")


def read_job_file(state: Path, plain: dict[str, Any]) -> dict[str, Any]:
    """Wait a while for a job's file.

    Args:
        state: the agent's state folder.
        plain: `config`, which names the master; `name`; `since`, Unix seconds: no older file counts.

    Returns:
        `{"told": content}`; None as content where it did not appear.

    Raises:
        FetchError: this is no name of such a file.
        TargetError: the master cannot be reached.
    """
    name, since = str(plain.get("name")), float(plain.get("since") or 0.0)
    if not _NAME.fullmatch(name):
        raise FetchError(f"{name!r:.100} is no name of a job's file")
    target = target_config.target(load_config(str(plain.get("config"))), registry.folder(state))
    until = time.monotonic() + WAIT_S
    with closing(target.open()) as session:
        sweep_job_files(session, time.time())
        while True:
            told = read_json(session, os.fsencode(f"{JOBS_FOLDER}/{name}"), MAX_JOB_FILE_BYTES)
            moment = told.get("time") if isinstance(told, dict) else None
            if isinstance(moment, int | float) and moment > since:
                return {"told": told}
            if time.monotonic() > until:
                return {"told": None}
            time.sleep(LOOK_S)


def sweep_job_files(session: TargetSession, now: float) -> None:
    """Remove files of old jobs on the master.

    Args:
        session: of the master.
        now: Unix seconds.
    """
    folder = os.fsencode(JOBS_FOLDER)
    try:
        found = listing_or_empty(session, folder)
        old = [name for name, state in found if state.kind == "file" and now - state.mtime_s > OLD_S]
        for name in [name for name in old if _NAME.fullmatch(os.fsdecode(name))][:MAX_SWEPT]:
            session.remove(folder + b"/" + name)
    except TargetError as error:  # they may be another user's
        _log.info("old files of jobs stay on the master: %s", error)
