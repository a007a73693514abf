"""Rendering of `rla-agent status` for a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from rla_agent.replicate.status_text import headline, size_text
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.text.duration_text import duration_text
from rla_client.contract.text.terminal_text import indented, printable

WATCH_INTERVAL_S = 1.0
GAP = "  "  # between columns
LABEL_MIN_CELLS = 12  # in a very narrow terminal, lines wrap rather than leave no run's name
STYLES = {
    "running": "green",
    "finished": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
    "stalled": "yellow",
    "removed": "magenta",
}


def show_status(status: dict[str, Any]) -> None:
    """Print a status."""
    Console(highlight=False).print(render_status(status))


def watch_status(ask: Callable[[], dict[str, Any]], *, as_json: bool) -> None:
    """Print the result of `ask` each second until Ctrl-C or the reader is gone.

    Without a terminal the results are appended; as JSON, each is one line.
    """
    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    with live or nullcontext():
        try:
            while True:
                status = ask()
                if live is not None:
                    live.update(render_status(status), refresh=True)
                elif as_json:
                    sys.stdout.write(json.dumps(status) + "\n")
                else:
                    console.print(render_status(status))
                sys.stdout.flush()
                time.sleep(WATCH_INTERVAL_S)
        except (KeyboardInterrupt, BrokenPipeError):
            return


def render_status(status: dict[str, Any]) -> RenderableType:
    """A status as a renderable of rich."""
    head = (printable(line).partition(" ") for line in _head(status))
    parts: list[RenderableType] = [_Lines([(rest, f"{label:<7}", " " * 7) for label, _, rest in head])]
    if status["runs"]:
        parts.append(_Runs(status["runs"]))
    elif status["agent"]["pid"] is not None:
        parts.append(Text("no runs yet"))
    if status["problems"]:
        parts += [Text(), Text("needs attention", style="bold red")]
        for problem in status["problems"]:
            what, fix = _on_one_line(problem["what"]), _on_one_line(problem["fix"])
            parts.append(_Lines([(what, "- ", "  "), (fix, "  → ", "    ")]))
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Texts in full width, each with a prefix of its first line, and one of the others."""

    texts: list[tuple[str, str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, first, others in self.texts:
            yield Text(indented(text, options.max_width, first, others))


def _on_one_line(text: object) -> str:
    return printable(" ".join(str(text).split()))


def _head(status: dict[str, Any]) -> list[str]:
    """Lines that begin with a label."""
    agent, spool = status["agent"], status["spool"]
    if agent["pid"] is None:
        lines = [f"agent  {agent['state']}"]
    else:
        service = f", {agent['service']} service" if agent["service"] else ""
        running = f"version {agent['version']}, up {duration_text(agent['uptime_s'])}{service}"
        lines = [f"agent  pid {agent['pid']}, {agent['state']}, {running}"]
    lines.append(f"state  {agent['state_dir']}")
    now = (  # unknown while no agent answers
        ""
        if agent["pid"] is None
        else f", of that {size_text(spool['lag_bytes'])} not durable; "
        f"commit lag {status['commit_lag_s']:.3f} s; {status['open_files']} open files"
    )
    lines.append(f"spool  {size_text(spool['bytes'])}{now}")
    if faults := status.get("internal_errors"):
        lines.append(f"faults {faults} internal errors; each with its traceback in: rla-agent logs")
    lines += _settings(status.get("settings", {}))
    lines += _alerts(status.get("alerts", {}))
    lines += [f"master {line}" for line in headline(status["replication"])] if "replication" in status else []
    return lines


def _settings(settings: dict[str, Any]) -> list[str]:
    """The values in force, by the file that they come from."""
    sources = dict.fromkeys(entry["source"] for entry in settings.values())
    said = {
        source: ", ".join(f"{key} {v['value']:g}" for key, v in settings.items() if v["source"] == source)
        for source in sources
    }
    return [f"values {values} ({source})" for source, values in said.items()]


def _alerts(alerts: dict[str, Any]) -> list[str]:
    """A line where there are rules, or something still waits."""
    if not alerts.get("rules") and not alerts.get("waiting"):
        return []
    sent = sum(channel["sent"] for channel in alerts["channels"])
    return [f"alerts {alerts['rules']} rules; {sent} sent in the last week, {alerts['waiting']} waiting"]


@dataclass(frozen=True, slots=True)
class _Runs:
    """One line a run, live ones first; the reason of a bad end is below it, in full width.

    No lines are drawn between the columns, and columns about live runs are left out where there is none, so
    that 80 columns have room for the names of runs.
    """

    runs: list[dict[str, Any]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        runs = sorted(self.runs, key=lambda run: not run["live"])
        live = any(run["live"] for run in runs)
        lines = [
            ["run", "state", "time-step", "rows", *(["silent", "rows/s", "lag"] if live else [])],
            *(_cells(run, live=live) for run in runs),
        ]
        widths = [max(cell_len(line[column]) for line in lines) for column in range(len(lines[0]))]
        room = options.max_width - sum(width + len(GAP) for width in widths[1:])
        widths[0] = min(widths[0], max(room, LABEL_MIN_CELLS))
        yield Text()
        yield _line(lines[0], widths, "bold")
        for run, cells in zip(runs, lines[1:], strict=True):
            yield _line(cells, widths, STYLES.get(run["state"], ""))
            if run["reason"] and run["state"] != "finished":
                yield Text(indented(_on_one_line(run["reason"]), options.max_width, "  ", "  "), style="dim")
            for said in lost_lines(run):
                yield Text(indented(_on_one_line(said), options.max_width, "  ", "  "), style="red")


def _cells(run: dict[str, Any], *, live: bool) -> list[str]:
    cells = [
        printable(label(run)),
        str(run["state"]),
        "" if run["time_step"] is None else f"{run['time_step']:g}",
        str(run["rows"]),
    ]
    if live and run["live"]:
        cells += [
            duration_text(run["silent_s"]) or "",
            f"{run['rows_per_s']:.1f}",
            size_text(run["lag_bytes"]),
        ]
    elif live:
        cells += ["", "", ""]
    return cells


def _line(cells: list[str], widths: list[int], style: str) -> Text:
    """The cells side by side; the style is that of the state, the second one, or bold: of all."""
    line = Text(no_wrap=True, overflow="ellipsis", style="bold" if style == "bold" else "")
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        shown = Text(cell, style=style if column == 1 else "")
        shown.truncate(width, overflow="ellipsis")
        missing = width - shown.cell_len
        if column > 1:
            line.append(GAP + " " * missing)
        elif column:
            line.append(GAP)
        line.append_text(shown)
        if column <= 1:
            line.append(" " * missing)
    return line


def label(run: dict[str, Any]) -> str:
    """Short name of a run: time and table, then the tracked parameters.

    A run without table, in a plain folder, has the end of its path.
    """
    if not run["table"]:
        return "/".join(Path(run["root"]).parts[-2:])
    index = RunIndex.parse(str(run["index"]))
    if index is None:
        return f"{run['table']}/{run['index']}"
    return f"{index.time[:8]} {run['table']} {index.info.strip('&')}".strip()
