"""`rla-agent status` for people: three tables that fit a terminal."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.table import Table

STYLES = {
    "running": "green",
    "finished": "cyan",
    "failed": "red",
    "killed": "red",
    "stalled": "yellow",
    "removed": "magenta",
}


def show_status(status: dict[str, Any], console: Console | None = None) -> None:
    """Print a status."""
    console = console or Console(highlight=False)
    agent, spool = status["agent"], status["spool"]
    console.print(
        f"agent  pid {agent['pid']}, version {agent['version']}, up {duration(agent['uptime_s'])}\n"
        f"state  {agent['state_dir']}\n"
        f"spool  {size(spool['bytes'])}, "
        f"last commit took {max([v['commit_s'] for v in status['volumes']], default=0):.3f} s, "
        f"{sum(v['open_files'] for v in status['volumes'])} open files",
        soft_wrap=True,
    )
    if status["runs"]:
        console.print(_runs(status["runs"]))
    else:
        console.print("no live runs")
    if status["problems"]:
        table = Table(title="needs attention", title_justify="left", title_style="bold red")
        table.add_column("what", overflow="fold")
        table.add_column("what to do", overflow="fold")
        for problem in status["problems"]:
            table.add_row(problem["what"], problem["mend"])
        console.print(table)


def _runs(runs: list[dict[str, Any]]) -> Table:
    table = Table(title="runs", title_justify="left")
    for name, justify in (("run", "left"), ("state", "left"), ("time-step", "right"), ("rows", "right"),
                          ("rows/s", "right"), ("silent", "right"), ("lag", "right")):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for run in runs:
        title = f"{run['table']}/{run['index']}" if run["table"] else run["root"]
        state = run["state"]
        table.add_row(
            title,
            f"[{STYLES.get(state, 'white')}]{state}[/]" + (f" ({run['reason']})" if run["reason"] else ""),
            "" if run["time_step"] is None else f"{run['time_step']:g}",
            str(run["rows"]),
            f"{run['rows_per_s']:g}",
            duration(run["silent_s"]),
            size(run["uncommitted_bytes"]),
        )
    return table


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    seconds = max(0.0, seconds)
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86400 else f"{seconds / 86400:.1f} d"  # noqa: PLR2004
