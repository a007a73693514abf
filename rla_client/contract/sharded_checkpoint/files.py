"""Names of the files of a sharded checkpoint.

::

    checkpoint/<table>/<index>/
        <name>_<step>.dcp/                   whole, and only then under this name
            __<rank>_<n>.distcp              shards, as torch.distributed.checkpoint reads them
            rank-<rank>.pt                   a rank's own data; not in every save
            .metadata                        places of the tensors
            .rla/plan-<rank>.json            pieces that a rank could write in this save
            .rla/plan.json                   rank 0's answer to these, for the other ranks
            .rla/shard-<rank>.json           receipt: these files of this rank are durable
            .rla/part.json                   this machine's ranks are complete here; the others are elsewhere
            .rla/whole.json                  the only mark of a complete checkpoint
        .rla-parts/<name>_<step>.<token>/    the same in the making; rank 0's `.metadata` is `.rla/metadata`
        .rla-parts/layout-<hash>.json        a rank's pieces, or their writers, for other ranks
        .rla-parts/fence.json                run and epoch whose saves may still be published here
        .rla-parts/publish.lock              held while a process publishes or removes
        .rla-parts/abandoned-N/              incomplete saves of earlier openings of the run

The token names one save: all ranks compute it without communication, from data that all of them have. So
parts of two saves are never in one folder, whichever process was killed in between. Receipts and `whole.json`
are JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from rla_client.contract.job.checkpoint_job import final_name

FOLDER_ENDING: Final = ".dcp"
OWN_FOLDER: Final = ".rla"
WHOLE_NAME: Final = "whole.json"
WHOLE_FILE: Final = f"{OWN_FOLDER}/{WHOLE_NAME}"
PART_NAME: Final = "part.json"
DECISION_NAME: Final = "plan.json"
PART_FILE: Final = f"{OWN_FOLDER}/{PART_NAME}"
METADATA: Final = ".metadata"
DECISION_FILE: Final = f"{OWN_FOLDER}/{DECISION_NAME}"
STAGED_METADATA: Final = f"{OWN_FOLDER}/metadata"
FENCE_FILE: Final = "fence.json"
LOCK_FILE: Final = "publish.lock"
MAX_WORLD: Final = 1 << 20  # ranks; more must be an error
_FINAL = re.compile(r"(?P<name>.+)_(?P<step>-?[0-9]{1,19})\.dcp", re.DOTALL)
_PARTS = re.compile(r"(?P<name>.+)_(?P<step>-?[0-9]{1,19})\.(?P<token>[0-9a-f]{16})", re.DOTALL)
_PLAN = re.compile(r"plan-(0|[1-9][0-9]{0,6})\.json")
_RECEIPT = re.compile(r"shard-(0|[1-9][0-9]{0,6})\.json")
_LAYOUT = re.compile(r"[0-9a-f]{32}")


def save_token(run: str, epoch: int, name: str, step: int, attempt: int) -> str:
    """Name of one save, 16 hex digits: the same on all ranks, and of no other save.

    Args:
        run: identity of the run.
        epoch: of its opening.
        name: of the series.
        step: time-step.
        attempt: how often this opening of the run has saved under this name and time-step before.
    """
    told = json.dumps([run, epoch, name, step, attempt]).encode()
    return hashlib.sha256(told).hexdigest()[:16]


def folder_name(name: str, step: int) -> str:
    """`<name>_<time-step>.dcp`.

    Raises:
        ArgumentError: the name is no text, or the time-step has more than 64 bits.
        UnsafeNameError: the name cannot be part of one file name.
    """
    return final_name(name, step).removesuffix(".pt") + FOLDER_ENDING


def parts_name(name: str, step: int, token: str) -> str:
    """Name of the folder of a save in the making.

    Raises:
        ArgumentError, UnsafeNameError: as `folder_name`.
    """
    return f"{folder_name(name, step).removesuffix(FOLDER_ENDING)}.{token}"


def parse_folder_name(folder: str) -> tuple[str, int] | None:
    """(name, time-step) of a whole checkpoint's folder; None where it is another name."""
    match = _FINAL.fullmatch(folder)
    return None if match is None else (match["name"], int(match["step"]))


def parse_parts_name(folder: str) -> tuple[str, int, str] | None:
    """(name, time-step, token) of a save in the making; None where it is another name."""
    match = _PARTS.fullmatch(folder)
    return None if match is None else (match["name"], int(match["step"]), match["token"])


def shard_name(rank: int, number: int = 0) -> str:
    """File of a rank's tensors, as torch.distributed.checkpoint calls it."""
    return f"__{rank}_{number}.distcp"


def rank_file_name(rank: int) -> str:
    """File of a rank's own data."""
    return f"rank-{rank}.pt"


def receipt_name(rank: int) -> str:
    """Receipt of a rank, below the checkpoint's folder."""
    return f"{OWN_FOLDER}/shard-{rank}.json"


def plan_note_name(rank: int) -> str:
    """Plan note of a rank, below the checkpoint's folder."""
    return f"{OWN_FOLDER}/plan-{rank}.json"


def layout_file(layout: str) -> str:
    """File of PARTS_FOLDER that describes the pieces of a rank, or which of them each rank writes."""
    return f"layout-{layout}.json"


def layout_of(file: str) -> str | None:
    """Layout in the name of a description in PARTS_FOLDER; None for other files."""
    layout = file.removeprefix("layout-").removesuffix(".json")
    return layout if _LAYOUT.fullmatch(layout) is not None and file == layout_file(layout) else None


def receipt_rank(file: str) -> int | None:
    """Rank in the name of a receipt in OWN_FOLDER; None for other files."""
    match = _RECEIPT.fullmatch(file)
    return None if match is None else int(match[1])


def is_only_of_the_making(file: str) -> bool:
    """Whether a file of OWN_FOLDER says nothing any more once the checkpoint is whole."""
    return file in {PART_NAME, DECISION_NAME} or _PLAN.fullmatch(file) is not None
