"""`rla-agent status` for people: a few lines and two tables that fit a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rla_agent.replicate.report import headline
from rla_client.layout import RunIndex

WATCH_INTERVAL_S = 1.0
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
    (console or Console(highlight=False)).print(render_status(status), soft_wrap=False)


def watch_status(ask: Callable[[], dict[str, Any]]) -> None:
    """Show what `ask` gives, anew each second until Ctrl-C; without a terminal, one below the other."""
    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with live or nullcontext():
        try:
            while True:
                shown = render_status(ask())
                if live is None:
                    console.print(shown)
                    console.file.flush()
                else:
                    live.update(shown, refresh=True)
                time.sleep(WATCH_INTERVAL_S)
        except (KeyboardInterrupt, BrokenPipeError):
            return


def watch_json(ask: Callable[[], dict[str, Any]]) -> None:
    """Print what `ask` gives as one line of JSON, anew each second until Ctrl-C or the reader is gone."""
    try:
        while True:
            sys.stdout.write(json.dumps(ask()) + "\n")
            sys.stdout.flush()
            time.sleep(WATCH_INTERVAL_S)
    except (KeyboardInterrupt, BrokenPipeError):
        return


def render_status(status: dict[str, Any]) -> RenderableType:
    """A status as something that rich can print."""
    parts: list[RenderableType] = [Text(_head(status), overflow="fold")]
    parts.append(_runs(status["runs"]) if status["runs"] else Text("no runs yet"))
    if status["problems"]:
        table = Table(title="needs attention", title_justify="left", title_style="bold red")
        table.add_column("what", overflow="fold")
        table.add_column("what to do", overflow="fold")
        for problem in status["problems"]:
            table.add_row(escape(problem["what"]), escape(problem["mend"]))
        parts.append(table)
    return Group(*parts)


def _head(status: dict[str, Any]) -> str:
    agent, spool = status["agent"], status["spool"]
    if agent["pid"] is None:
        lines = [f"agent  {agent['state']}"]
    else:
        service = f", {agent['service']} service" if agent["service"] else ""
        running = f"version {agent['version']}, up {duration(agent['uptime_s'])}{service}"
        lines = [f"agent  pid {agent['pid']}, {agent['state']}, {running}"]
    lines.append(f"state  {agent['state_dir']}")
    lines.append(
        f"spool  {size(spool['bytes'])}, of that {size(spool['lag_bytes'])} not durable; "
        f"commit lag {status['commit_lag_s']:.3f} s; {status['open_files']} open files"
    )
    lines += _alerts(status.get("alerts", {}))
    lines += [f"master {line}" for line in headline(status["replication"])] if "replication" in status else []
    return "\n".join(lines)


def _alerts(alerts: dict[str, Any]) -> list[str]:
    """A line where there are rules, or something still waits."""
    if not alerts.get("rules") and not alerts.get("waiting"):
        return []
    sent = sum(channel["sent"] for channel in alerts["channels"])
    return [f"alerts {alerts['rules']} rules; {sent} sent in the last week, {alerts['waiting']} waiting"]


def _runs(runs: list[dict[str, Any]]) -> Table:
    """One line a run, live ones first; why a run failed stands below it."""
    table = Table(title="runs", title_justify="left", expand=True)
    for name in ("run", "state", "time-step", "rows", "rows/s", "silent", "lag"):
        left = name in {"run", "state"}
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if name == "run" else None,
        )
    for run in sorted(runs, key=lambda run: not run["live"]):
        state = run["state"]
        table.add_row(
            escape(label(run)),
            f"[{STYLES.get(state, 'white')}]{state}[/]",
            "" if run["time_step"] is None else f"{run['time_step']:g}",
            str(run["rows"]),
            f"{run['rows_per_s']:.1f}" if run["live"] else "",
            duration(run["silent_s"]),
            size(run["lag_bytes"]) if run["live"] else "",
        )
        if run["reason"] and state != "finished":
            table.add_row(f"  [dim]{escape(run['reason'])}[/]")
    return table


def label(run: dict[str, Any]) -> str:
    """What tells a run from others in little room: time and table, then what its index tracks."""
    if not run["table"]:
        return str(run["root"])
    index = RunIndex.parse(str(run["index"]))
    if index is None:
        return f"{run['table']}/{run['index']}"
    return f"{index.time[:8]} {run['table']} {index.info}"


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
