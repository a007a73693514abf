"""Command `rla-agent transfer pull`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Annotated

import typer

from rla_agent.command.master_target import target_failures, target_of
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import KindOption, ProjectOption, RootOption
from rla_agent.command.transfer.progress import progress_bars
from rla_agent.command.transfer.selection_options import IndexOption, SinceOption, TableOption, UntilOption
from rla_agent.command.transfer.summary import end_with_summary, print_summary
from rla_agent.replicate.transfer.follow import follow
from rla_agent.replicate.transfer.pull import pull as pull_items
from rla_agent.replicate.transfer.reading_sessions import Readers
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.transfer.tally import Tally
from rla_client.config.schema import load_config
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.command_line import examples

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@transfer_app.command(
    "pull", epilog=examples("rla-agent transfer pull --config rla_config.yaml --data-root data", "rla pull")
)
def pull(  # noqa: PLR0913, PLR0917 - options
    config: ProjectOption,
    data_root: RootOption,
    table: TableOption = "*",
    index: IndexOption = "*",
    since: SinceOption = "",
    until: UntilOption = "",
    kind: KindOption = None,
    *,
    keep_on: Annotated[bool, typer.Option("--follow", help="keep fetching until Ctrl-C")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="with --follow: seconds between checks")] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Fetch items from the master; local files are not replaced, interrupted ones continue."""
    with target_failures():
        selection = ItemSelection(table, index, since, until, tuple(kind or DEFAULT_LOG_TYPES))
        target = target_of(load_config(config))

        def connect() -> Readers:
            return Readers.opened(target.open, target.connections)

        def fetch(readers: Readers) -> Tally:
            with progress_bars() as progress:
                return pull_items(readers, str(data_root), selection, progress)

        if keep_on:
            _follow(connect, fetch, every, as_json=as_json)
            return
        with closing(connect()) as readers:
            tally = fetch(readers)
    end_with_summary("fetched", tally, as_json=as_json)


def _follow(
    connect: Callable[[], Readers],
    fetch: Callable[[Readers], Tally],
    every_s: float,
    *,
    as_json: bool,
) -> None:
    def tell(tally: Tally) -> None:
        if tally.files or tally.failed:
            print_summary(f"{time.strftime('%H:%M:%S')} fetched", tally, as_json=as_json)

    with suppress(KeyboardInterrupt):
        follow(connect, fetch, every_s, tell, lambda line: typer.echo(line, err=True))
