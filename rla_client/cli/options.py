"""Options that the commands of `rla` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.completion import (
    complete_columns,
    complete_commit,
    complete_metric,
    complete_run,
    complete_state,
    complete_table,
    complete_tag,
    complete_where,
)

MOMENT = "%Y-%m-%d %H:%M:%S"
MOST_SHOWN = 1_000_000_000  # largest number of rows or lines that an option accepts
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root", "-d", envvar="RLA_DATA_ROOT", help="The database: the folder that holds log/."
    ),
]
TableOption = Annotated[
    str | None, typer.Option("--table", "-t", help="Only this task table.", autocompletion=complete_table)
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        help="Only runs that match, e.g. \"lr == 0.001 and state == 'finished' and took > 60\".",
        autocompletion=complete_where,
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only runs started since then: 2026/11/21, 36h, 7d.")
]
WithCommit = Annotated[
    str | None,
    typer.Option(
        "--commit",
        metavar="HASH",
        help="Only runs started from this git commit; its first digits do.",
        autocompletion=complete_commit,
    ),
]
Newest = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, max=MOST_SHOWN, help="Only the newest so many of these runs."),
]
Archived = Annotated[bool, typer.Option("--archived", help="Archived runs (those under arc/) instead.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Columns = Annotated[
    str | None,
    typer.Option("--columns", "-c", help="Columns, separated by commas.", autocompletion=complete_columns),
]
_RUN_HELP = "Index, a unique part of it (quote one with &), or @last."
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=_RUN_HELP, autocompletion=complete_run)]
RunArguments = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help=_RUN_HELP, autocompletion=complete_run)
]
Fitting = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        "-r",
        metavar="RUN",
        help="All runs that match, e.g. 'lr=0.1&seed=3' (repeatable).",
        autocompletion=complete_run,
    ),
]
WithTag = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Only runs with this tag (repeatable).", autocompletion=complete_tag),
]
WithState = Annotated[
    list[str] | None,
    typer.Option(
        "--state", help="Only runs in this state, e.g. failed,killed.", autocompletion=complete_state
    ),
]
OtherRun = Annotated[
    str, typer.Argument(metavar="OTHER_RUN", help="The run to compare with.", autocompletion=complete_run)
]
AskedRanks = Annotated[
    str | None,
    typer.Option(
        "--ranks",
        metavar="all|mean|N",
        help="Of runs with several ranks: each rank apart, their mean at each time-step, or rank N alone.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", "-m", help="This column of progress.csv (repeatable).", autocompletion=complete_metric
    ),
]
