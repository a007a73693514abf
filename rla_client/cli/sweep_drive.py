"""Sweep driven from a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from rla_client.cli.output import print_done, say_aside
from rla_client.cli.sweep_screen import SweepScreen

if TYPE_CHECKING:
    from rla_client.sweep.driver import Driver


POLL_S = 0.1
OnInterrupt: TypeAlias = Literal["ask", "leave", "stop"]
EXIT_FAILED, EXIT_LEFT = 1, 3


def drive(
    file: Path,
    root: Path,
    on: str,
    interrupt: OnInterrupt,
    *,
    name: str | None = None,
    failed: bool,
    as_json: bool,
) -> None:
    """Drive a sweep to its end, as a command; exits with its outcome."""
    from rla_client.sweep.driver import LEAVE
    from rla_client.sweep.driver_setup import begin
    from rla_client.sweep.results import no_metric
    from rla_client.sweep.run_state import OVER
    from rla_client.sweep.sweep_table import shown_counts

    shown = SweepScreen(as_json=as_json)
    journal, spec, driver = begin(file, root, on, name=name, failed=failed, on_look=shown.look)
    if name is None and journal.begun_in != os.getcwd():  # `resume` passes a name
        say_aside(
            f"(the sweep {journal.name} was started in {journal.begun_in}; its runs use that working folder)"
        )
    try:
        with shown, _signals(driver, interrupt, shown):
            driver.run()
    finally:
        journal.release()
    counts = shown_counts(journal)
    text = " ".join(f"{count} {state}" for state, count in counts.items() if count)
    missing = no_metric(journal, spec.metric, wait=True)
    print_done({"name": journal.name, "counts": counts}, text, as_json=as_json)
    if missing:
        say_aside(missing)
    left = [run for run in journal.runs.values() if run.state not in OVER]
    if left:
        what = "live runs continue; " if driver.asked == LEAVE and on != "ray" else ""
        say_aside(f"{what}`rla sweep resume {journal.name}` continues the sweep")
        raise typer.Exit(EXIT_LEFT)
    if any(run.state == "failed" for run in journal.runs.values()):
        say_aside(f"`rla sweep status {journal.name}` shows why")
        say_aside(f"`rla sweep resume --failed {journal.name}` starts them again")
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _signals(driver: Driver, interrupt: str, shown: SweepScreen) -> Iterator[None]:
    """Ctrl-C and SIGTERM become requests to the driver."""
    from rla_client.sweep.driver import LEAVE, STOP

    asks = interrupt == "ask" and sys.stdin.isatty() and sys.stdout.isatty()

    def ask() -> None:
        shown.pause()
        typer.echo(
            "\n[l]eave the runs running and exit, [s]top them, or [g]o on supervising: ", nl=False, err=True
        )
        driver.asked = {"l": LEAVE, "s": STOP}.get(_typed().strip().lower()[:1], "")
        shown.question = None
        shown.go_on()

    def handle(number: int, _frame: object) -> None:
        if driver.asked or shown.question is not None:  # a second signal ends the command at once
            raise KeyboardInterrupt
        if number == signal.SIGINT and asks:
            shown.question = ask  # asked at the next update, because a handler may interrupt printing
        else:
            driver.asked = LEAVE if interrupt == "leave" else STOP

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, one in former.items():
            signal.signal(number, one)


def _typed() -> str:
    """A line from the terminal; polling lets signals be handled within `POLL_S`."""
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        pass
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line
