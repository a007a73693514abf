"""Command `rla-agent transfer push`."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from rla_agent.command.master_target import target_failures, target_of
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import KindOption, ProjectOption, RootOption
from rla_agent.command.transfer.progress import progress_bars
from rla_agent.command.transfer.selection_options import IndexOption, SinceOption, TableOption, UntilOption
from rla_agent.command.transfer.summary import end_with_summary
from rla_agent.replicate.transfer.push import push as push_items
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.config.schema import load_config
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.command_line import examples

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@transfer_app.command(
    "push", epilog=examples("rla-agent transfer push --config rla_config.yaml --data-root data", "rla push")
)
def push(  # noqa: PLR0913, PLR0917 - options
    config: ProjectOption,
    data_root: RootOption,
    table: TableOption = "*",
    index: IndexOption = "*",
    since: SinceOption = "",
    until: UntilOption = "",
    kind: KindOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Send items to the master; files it already has are not replaced."""
    with target_failures():
        selection = ItemSelection(table, index, since, until, tuple(kind or DEFAULT_LOG_TYPES))
        with progress_bars() as progress, closing(target_of(load_config(config)).open()) as session:
            tally = push_items(session, str(data_root), selection, progress)
    end_with_summary("sent", tally, as_json=as_json)
