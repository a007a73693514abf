"""Unique label of a further writer of a run.

Labels are part of file names, and the files of all machines are in one item on the master, so no two machines
may use the same label.
"""

from __future__ import annotations

import os
from typing import Final

from rla_client.contract.layout import HYPARAMETER
from rla_client.contract.run_part import ranks_of, run_parts
from rla_client.contract.spool.opening import Opening

MAX_CHARS: Final = 64


def with_machine(label: str, machine: str) -> str:
    """A label that no other machine has, cut to what a label may have; the same without a machine."""
    return f"{label[: MAX_CHARS - 1 - len(machine)]}-{machine}" if machine else label


def label_of_rank(opening: Opening, label: str, machine: str) -> str:
    """Label of a rank in a resumed run, which continues files of this machine.

    Another machine that had the rank may still be sending its files, so their names are not reused.

    Args:
        opening: of the run, for this machine.
        label: that of a new run.
        machine: this one's name.
    """
    if opening.continues is not None and opening.continues.staged:
        return label  # a fork: nobody else had it
    parts = run_parts(opening.log_folder)
    mine = any(label in ranks_of(content) for name, content in parts.items() if name == machine)
    others = any(label in ranks_of(content) for name, content in parts.items() if name != machine)
    main = os.path.join(opening.root, opening.folders.get(HYPARAMETER, ""))  # a part alone has no such folder
    shared = bool(opening.part) and HYPARAMETER in opening.folders and os.path.isdir(main)
    file = opening._replace(label=label).output_path("warn")
    there = os.path.lexists(os.path.join(opening.log_folder, file))
    return label if mine or (there and not others and not shared) else with_machine(label, machine)
