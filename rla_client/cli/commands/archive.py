"""`rla archive`: runs copied to `arc/`."""

from __future__ import annotations

import typer

from rla_client.cli.chosen_items import Kinds
from rla_client.cli.copied_runs import copy_runs
from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, DataRoot, Yes
from rla_client.cli.registration import CHANGE, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.layout import ARCHIVED_TABLE


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, archive, CHANGE, "rla archive @last", "rla archive --tag best --kinds log,checkpoint")


@takes_runs()
def archive(
    *,
    chosen: Selection,
    kinds: Kinds = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs to the archive, arc/ in the database."""
    database = open_database(data_root)
    copy_runs(database, chosen, kinds, ARCHIVED_TABLE + "/{kind}/{table}", "arc/", yes=yes, as_json=as_json)
