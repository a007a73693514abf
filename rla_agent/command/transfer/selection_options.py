"""Options that select items."""

from __future__ import annotations

from typing import Annotated

import typer

TableOption = Annotated[str, typer.Option(help="glob for task tables")]
IndexOption = Annotated[str, typer.Option(help="glob for YYYY/MM/DD/name")]
SinceOption = Annotated[str, typer.Option(help="from this date on, YYYY/MM/DD or YYYY/MM/DD/HH-MM-SS-ffffff")]
UntilOption = Annotated[str, typer.Option(help="up to this date")]
