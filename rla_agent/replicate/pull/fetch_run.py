"""An unfinished run of another machine, found on the master and brought here to be gone on with.

For `configure(run_id=…, resume=…)` on a machine that has no such run. The newest run of that id in the
table decides: it is looked for from the newest day back, so that the usual case is found after a few reads;
after `MAX_LOOKED_AT` runs or `SEARCH_S` the search says that it gave up, for "none" would begin anew what
has been begun. Brought here are what the database shows of the run (log, hyper-parameters, archive) and of
its checkpoints the newest, with the state that exact resume needs.

All of it goes by `transfer.fetch`: unsafe names are refused, nothing goes through links, a file takes its
name when it is whole. Where the run's `SHA256SUMS` is there, the checkpoint is checked against it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rla_agent.replicate import registry, settings
from rla_agent.replicate.backend.target import MissingError, RemoteStat, Session
from rla_agent.replicate.ledger.checksums import damaged
from rla_agent.replicate.pull.transfer import NewerHereError, Tally, fetch, item_files, make_below
from rla_agent.replicate.worker.scan import MAX_RUN_JSON_BYTES, SILENT_S, heard_s_ago
from rla_client.config.schema import load_config
from rla_client.contract.checkpoints import FETCHED_MARK
from rla_client.contract.errors import FetchError, StillWrittenError
from rla_client.contract.files import discard, held_folder, write_atomic
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    DATE_LENGTH,
    HYPARAMETER,
    LOG,
    RunIndex,
    check_table_name,
)

MAX_LOOKED_AT: Final = 20_000
SEARCH_S: Final = 60.0
RESUME_FOLDER: Final = b".resume"
SHOWN_KINDS: Final = (LOG, HYPARAMETER)
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for: a run of `run_key` in `table`; it goes below `root`.

    `series`: of checkpoints. `known`: index of the run of that key that is here; only newer ones count.
    """

    config: str
    root: str
    table: str
    run_key: str
    series: str
    known: str


def fetch_unfinished(state: Path, plain: dict[str, Any]) -> dict[str, Any]:
    """Find a run and bring it here.

    Args:
        state: the agent's state folder.
        plain: the fields of a `Question`.

    Returns:
        `index` of the run, `time_step` of its checkpoint, `run_id` and `host`; `{"index": None}` where
        there is none to continue: no such run, it has finished, or it has no checkpoint there.

    Raises:
        StillWrittenError: it is still being written.
        FetchError: the search was given up.
        TargetError: the master cannot be reached.
    """
    question = Question(**{name: str(plain.get(name, "")) for name in Question.__slots__})
    check_table_name(question.table)
    target = settings.target(load_config(question.config), registry.folder(state))
    session = target.open()
    try:
        return _fetch(session, question)
    finally:
        session.close()


def _fetch(session: Session, question: Question) -> dict[str, Any]:
    found = _newest(session, question)
    if found is None:
        return {"index": None}
    index, run = found
    if run.get("state") == FINISHED or index[:DATE_LENGTH] <= question.known[:DATE_LENGTH]:
        return {"index": None}
    _refuse_live(run, question)
    item = f"{question.table}/{index}"
    checkpoint = _newest_checkpoint(session, item, question.series)
    if checkpoint is None:
        return {"index": None}
    step, name, state = checkpoint
    folder = os.fsencode(f"{CHECKPOINT}/{item}/")
    _mark(session, question.root, item)
    for path, remote in _shown(session, item):
        with suppress(NewerHereError):  # a note that somebody has written here
            fetch(session, question.root, path, remote)
    for ending in (".state", ".marks.json"):
        path = folder + RESUME_FOLDER + f"/{question.series}_{step}{ending}".encode()
        beside = session.stat(path)
        if beside is not None and beside.kind == "file":
            fetch(session, question.root, path, beside)
    fetch(session, question.root, folder + name, state)
    _check_sum(question.root, item, name)
    return {"index": index, "time_step": step, "run_id": run.get("run_id"), "host": run.get("host")}


def _mark(session: Session, root: str, item: str) -> None:
    """Say, before run.json is here, that this copy is not to be gone on with in place."""
    os.close(make_below(session, root, (LOG, *item.split("/"))))
    with held_folder(root, f"{LOG}/{item}") as folder:
        if not os.path.lexists(folder / "run.json"):
            write_atomic(folder / FETCHED_MARK, b"{}")


def _refuse_live(run: dict[str, Any], question: Question) -> None:
    age = heard_s_ago(run, time.time())
    if age is not None:
        raise StillWrittenError(
            f"the run {question.run_key!r} is still being written on {run.get('host')}, last heard of "
            f"{age:.0f} s ago; end it there, or if that machine is gone: it counts as dead after "
            f"{SILENT_S:.0f} s of silence"
        )


def _newest(session: Session, question: Question) -> tuple[str, dict[str, Any]] | None:
    """Index and run.json of the newest run with this key."""
    until = time.monotonic() + SEARCH_S
    for count, index in enumerate(_indices(session, f"{LOG}/{question.table}")):
        if count >= MAX_LOOKED_AT or time.monotonic() > until:
            raise FetchError(
                f"the master's table {question.table!r} was searched for {question.run_key!r} back to "
                f"{index[:10]}, and not to its beginning; fetch the run yourself: rla pull"
            )
        path = os.fsencode(f"{LOG}/{question.table}/{index}/run.json")
        try:
            run = json.loads(session.read(path, 0, MAX_RUN_JSON_BYTES))
        except (MissingError, ValueError, RecursionError):
            continue
        if isinstance(run, dict) and run.get("run_key") == question.run_key:
            return index, run
    return None


def _indices(session: Session, base: str) -> Iterator[str]:
    """Indices below a table's folder, newest first."""

    def below(folder: str, digits: int) -> list[str]:
        try:
            listed = session.listing(os.fsencode(folder))
        except MissingError:
            return []
        names = [os.fsdecode(name) for name, state in listed if state.kind == "folder"]
        return sorted((name for name in names if len(name) == digits and name.isdigit()), reverse=True)

    for year in below(base, 4):
        for month in below(f"{base}/{year}", 2):
            for day in below(f"{base}/{year}/{month}", 2):
                found = session.listing(os.fsencode(f"{base}/{year}/{month}/{day}"))
                names = sorted((os.fsdecode(name) for name, _ in found), reverse=True)
                indices = (f"{year}/{month}/{day}/{name}" for name in names)
                yield from (index for index in indices if RunIndex.parse(index) is not None)


def _newest_checkpoint(session: Session, item: str, series: str) -> tuple[int, bytes, RemoteStat] | None:
    """Time-step, name and state of the newest whole checkpoint."""
    pattern = re.compile(rf"{re.escape(series)}[_-](-?[0-9]{{1,19}})\.pt", re.DOTALL)
    try:
        listed = session.listing(os.fsencode(f"{CHECKPOINT}/{item}"))
    except MissingError:
        return None
    found = [
        (int(match[1]), name, state)
        for name, state in listed
        if state.kind == "file" and (match := pattern.fullmatch(os.fsdecode(name))) is not None
    ]
    return max(found, key=lambda one: one[0], default=None)


def _shown(session: Session, item: str) -> Iterator[tuple[bytes, RemoteStat]]:
    """What the database shows of a run."""
    for kind in SHOWN_KINDS:
        yield from item_files(session, os.fsencode(f"{kind}/{item}"), Tally())
    for ending in (".json", ".pt"):
        path = os.fsencode(f"{ARCHIVE_TESTER}/{item}{ending}")
        state = session.stat(path)
        if state is not None and state.kind == "file":
            yield path, state


def _check_sum(root: str, item: str, name: bytes) -> None:
    """Compare the checkpoint with the run's sums, where the master had some.

    Raises:
        FetchError: they differ; the file is removed.
    """
    path = f"{CHECKPOINT}/{item}/{os.fsdecode(name)}"
    if damaged(root, item, [path]):
        discard(root, *os.path.split(path))
        raise FetchError(
            f"{os.fsdecode(name)} on the master is not what its SHA256SUMS says; see: rla verify"
        )
