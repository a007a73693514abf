"""`rla fsck`: faults in the files of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.confirmation import agree
from rla_client.cli.open_database import held, open_database
from rla_client.cli.options import AsCsv, AsJson, DataRoot, TableOption, Yes
from rla_client.cli.output import print_rows, say, say_aside
from rla_client.cli.registration import CHECK, add_command
from rla_client.database.clock import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rla_client.database.fsck import TreeFault


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, fsck, CHECK, "rla fsck", "rla fsck --fix --only orphan")


def fsck(
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help="Only these faults, e.g. torn-row,stray; orphan and stray only if named here."
        ),
    ] = None,
    table: TableOption = None,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Read sharded checkpoints whole, and compare their SHA-256.")
    ] = False,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Find torn, missing, orphan and inconsistent items."""
    from rla_client.database.fsck import find_faults
    from rla_client.database.fsck_repairs import ON_REQUEST, repair

    named = {kind.strip() for kind in only.split(",")} if only is not None else None
    root = open_database(data_root).data_root
    found = find_faults(root, clock(), table, hashes=hashes)
    faults = [fault for fault in found if named is None or fault.kind in named]
    repairable = [f for f in faults if f.repairable and (named is not None or f.kind not in ON_REQUEST)]
    if as_json or as_csv or faults:
        rows = [[fault.kind, _how_to_fix(fault), fault.where, fault.text] for fault in faults]
        print_rows(["fault", "repaired by", "where", "what"], rows, as_json=as_json, as_csv=as_csv)
    if not faults:
        if not (as_json or as_csv):
            say("no faults")
        return
    left = _left_text(faults, repairable)
    if not fix:
        only_text = f" --only {only}" if only is not None else ""
        say_aside(f"{len(faults)} fault(s); `rla fsck --fix{only_text}` repairs {len(repairable)}{left}")
        raise typer.Exit(1)
    if repairable:
        agree(f"Repair {len(repairable)} fault(s)?", yes)
        with held(root):
            for fault in repairable:
                repair(root, fault, clock())
    say_aside(f"repaired {len(repairable)} of {len(faults)} fault(s){left}")
    raise typer.Exit(0 if len(repairable) == len(faults) else 1)


def _left_text(faults: Sequence[TreeFault], repairable: Sequence[TreeFault]) -> str:
    """Text about the faults that a repair leaves, and how to repair them."""
    asked = [fault.kind for fault in faults if fault.repairable and fault not in repairable]
    by_hand = sum(not fault.repairable for fault in faults)
    text = f"; {len(asked)} only by `rla fsck --fix --only {','.join(sorted(set(asked)))}`" if asked else ""
    return text + (f"; {by_hand} by hand" if by_hand else "")


def _how_to_fix(fault: TreeFault) -> str:
    from rla_client.database.fsck_repairs import ON_REQUEST

    if not fault.repairable:
        return "hand"
    return f"--fix --only {fault.kind}" if fault.kind in ON_REQUEST else "--fix"
