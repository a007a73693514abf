"""Live table of a sweep."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rla_client.cli.output import teller
from rla_client.database.text.safe_text import clean

if TYPE_CHECKING:
    from typing_extensions import Self

    from rla_client.sweep.journal import Journal
    from rla_client.sweep.spec import Spec


DRAW_S = 1.0
DRAW_SHARE = 20  # pause between updates as a multiple of the time to draw


class SweepScreen:
    """The live table on a terminal; elsewhere a line whenever a run's state changes.

    Attributes:
        question: function that asks the user at the next update; not None until it has been answered.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._tell = teller(as_json=as_json)
        self._as_json = as_json
        self.question: Callable[[], None] | None = None
        self._live: Any = None
        self._values: Any = None
        self._journal: Journal | None = None
        self._next = 0.0
        self._states: dict[int, str] = {}
        self._draw: Callable[[], str] = str

    def __enter__(self) -> Self:
        if sys.stdout.isatty() and not self._as_json:
            from rich.live import Live
            from rich.text import Text

            self._live = Live(
                get_renderable=lambda: Text(self._draw(), no_wrap=True), auto_refresh=False, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        if self._live is None and self._journal is not None:
            self._say_changes(self._journal)

    def pause(self) -> None:
        """Stop drawing, so that others may use the terminal."""
        if self._live is not None:
            self._live.stop()

    def go_on(self) -> None:
        """Resume drawing."""
        if self._live is not None:
            self._live.start()

    def look(self, journal: Journal, spec: Spec) -> None:
        """Show changes, at most once per `DRAW_S`."""
        self._journal = journal
        if self.question is not None:
            self.question()
        began = time.monotonic()
        if began < self._next:
            return
        if self._live is None:
            self._say_changes(journal)
        else:
            self._draw = lambda: self._table(journal, spec)
            self._live.refresh()
        now = time.monotonic()
        self._next = now + max(DRAW_S, DRAW_SHARE * (now - began))

    def _say_changes(self, journal: Journal) -> None:
        from rla_client.sweep.sweep_table import QUEUED

        for number, run in journal.runs.items():
            state = QUEUED if journal.is_queued(run) else run.state
            if self._states.get(number, "waiting") != state:
                given = " ".join(f"{name}={value}" for name, value in run.parameters.items())
                why = f": {run.reason}" if run.state in {"failed", "waiting"} and run.reason else ""
                self._tell(clean(f"run {number} {state}  {given}{why}"))
                self._states[number] = state
        sys.stdout.flush()

    def _table(self, journal: Journal, spec: Spec) -> str:
        from rla_client.sweep import results, sweep_table

        if self._values is None:
            self._values = results.MetricValues(journal, spec.metric)
        rows, best = sweep_table.rows(self._values, time.time()), results.best_trials(self._values)[:1]
        parts = [sweep_table.summary(journal, 0)]
        parts += [clean(f"best: {' '.join(f'{k}={v}' for k, v in best[0].items())}")] if best else []
        room = max(shutil.get_terminal_size().lines - len(parts) - 4, 3)
        return "\n".join([*parts, "", sweep_table.table(rows, room)])
