"""Screen of `rla top`.

All texts come from files, so they are shown without markup and control characters. A worker thread reads the
files, so that the screen never waits for a disk. The screen uses textual (extra `top`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, OptionList, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from rla_client.contract.errors import RlaError
from rla_client.contract.text.duration_text import duration_text
from rla_client.database.clock import clock
from rla_client.database.curves.chart_points import Points
from rla_client.database.records.record import Record
from rla_client.database.run_parts import parts_of
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import cut
from rla_client.top.braille import draw
from rla_client.top.runs_on_screen import RunsOnScreen

EVERY_S = 2.0
MAX_CURVES = 8
COLOURS = ("cyan", "yellow", "green", "magenta", "red", "blue", "bright_white", "bright_cyan")
LETTERS = "abcdefgh"  # of curves, as colours alone may be hard to distinguish
SORTS = ("live", "value", "step", "took", "table")
COLUMNS = ("", "state", "table", "run", "step", "metric", "value", "took")
TABS = ("curves", "log", "system", "fleet")
STATE_STYLES = {"running": "green", **dict.fromkeys(("failed", "killed"), "red")}
STATE_STYLES |= dict.fromkeys(("stalled", "unknown"), "yellow")
STATE_CHARS = 44  # of a cell with the state and the first dead part of a run
MARGIN = 10  # columns beside a chart, for its labels
HELP = """\
↑ ↓        highlight a run             1 2 3 4   curves, log, system, fleet
space      mark it for the curves      m         choose the metric
/          filter, as rla ls --where   s         sort by the next column
escape     clear filter, then marks    q         quit"""
RunName = tuple[str, str]  # table, index


class TopApp(App[None]):
    """The screen of `rla top`."""

    TITLE = "rla top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #runs { height: 2fr; min-height: 5; }
    TabbedContent { height: 3fr; }
    TabPane { padding: 0; }
    #status { height: 1; background: $panel; }
    #filter { display: none; height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("space", "mark", "mark", priority=True),
        Binding("slash", "filter", "filter"),
        Binding("m", "metric", "metric"),
        Binding("s", "sort", "sort"),
        Binding("question_mark", "help", "help"),
        Binding("escape", "clear", "clear", show=False, priority=True),
        *(Binding(str(place), f"tab('{tab}')", tab, show=False) for place, tab in enumerate(TABS, 1)),
    ]

    def __init__(self, source: RunsOnScreen, where: str | None = None) -> None:
        super().__init__()
        self._source = source
        self._where = where
        self._marked: list[RunName] = []
        self._metric = ""
        self._sort = SORTS[0]
        self._seen = Seen()
        self._looking = self._again = False
        self._cells: dict[str, tuple[str, ...]] = {}
        self._order: list[str] = []

    def compose(self) -> ComposeResult:
        yield DataTable(id="runs", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="lr == 0.001 and state == 'running'", id="filter", select_on_focus=False)
        with TabbedContent(initial="curves"):
            for tab in TABS:
                with TabPane(tab, id=tab), VerticalScroll():
                    yield Static(id=f"{tab}-body", markup=False)
        with Horizontal(id="status"):
            yield Static(id="message", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        table = self._table
        for name in COLUMNS:
            table.add_column(name, key=name or "mark", width=None if name else 1)
        table.focus()
        self._look()
        self.set_interval(EVERY_S, self._look)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#runs", DataTable)

    @property
    def _open_tab(self) -> str:
        return self.query_one(TabbedContent).active

    @property
    def _taken_down(self) -> bool:
        """Whether the widgets are gone: timers and threads may still run while the app ends."""
        return not (self.query("#runs") and self.query(TabbedContent))

    def _look(self) -> None:
        """Read the files; if a read is in progress, start another one after it."""
        self._again = self._looking
        if not self._looking and not self._taken_down:
            self._looking = True
            self._read(self._open_tab, self._highlighted())

    @work(thread=True)
    def _read(self, tab: str, highlighted: RunName | None) -> None:
        """Read the runs and the content of the open tab, then show both."""
        try:
            seen = Seen(self._source.runs(self._where))
        except (RlaError, OSError) as error:
            seen = Seen(self._seen.records, str(error).partition("\n")[0])
        there = {(record.table, record.index): record for record in seen.records}
        run = highlighted if highlighted in there else next(iter(there), None)
        seen.body = self._body(tab, run, there)
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._show, seen, tab)

    def _body(self, tab: str, run: RunName | None, there: dict[RunName, Record]) -> object:
        if tab == "fleet":
            return self._source.fleet()
        if run is None:
            return None
        if tab == "log":
            return self._source.log(run)
        if tab == "system":
            return self._source.system(run)
        runs = [one for one in self._marked if one in there][:MAX_CURVES] or [run]
        metric = self._metric or there[runs[0]].likely
        return metric, [(one, self._source.curve(one, metric)) for one in runs]

    def _show(self, seen: Seen, tab: str) -> None:
        self._looking = False
        if self._taken_down:
            return
        if self._again:
            self._look()
        self._seen = seen
        self._show_runs()
        if tab == self._open_tab:
            body = self.query_one(f"#{tab}-body", Static)
            width, height = self.size.width - 2, max(self.query_one(TabbedContent).size.height - 4, 4)
            body.update(getattr(self, f"_{tab}_text")(seen.body, width, height))
            if tab == "log":
                self.query_one("#log VerticalScroll", VerticalScroll).scroll_end(animate=False)
        now = clock()
        live = sum(record.is_live(now) for record in seen.records)
        words = [f"{len(seen.records)} runs, {live} live", f"sorted: {self._sort}"]
        words += [f"filter: {clean(self._where)}"] if self._where else []
        words += [clean(seen.problem)] if seen.problem else []
        self.query_one("#message", Static).update("  ·  ".join(words))

    def _show_runs(self) -> None:
        table, now = self._table, clock()
        records = sorted(self._seen.records, key=self._sort_key)
        rows = {f"{record.table}\0{record.index}": self._cells_of(record, now) for record in records}
        if list(rows) == self._order:
            for key, cells in rows.items():
                for name, cell, old in zip(COLUMNS, cells, self._cells[key], strict=True):
                    if cell != old:
                        table.update_cell(key, name or "mark", _styled(name, cell), update_width=bool(name))
        else:
            chosen = self._highlighted_key()
            table.clear()
            for key, cells in rows.items():
                table.add_row(*map(_styled, COLUMNS, cells), key=key)
            if chosen in rows:
                table.move_cursor(row=list(rows).index(chosen), animate=False)
        self._order, self._cells = list(rows), rows

    def _cells_of(self, record: Record, now: float) -> tuple[str, ...]:
        run = (record.table, record.index)
        mark = LETTERS[self._marked.index(run)] if run in self._marked[:MAX_CURVES] else ""
        tracked = " ".join(f"{name}={text}" for name, text in record.tracked.items())
        return (
            mark,
            cut(clean("; ".join([record.shown_state(now), *parts_of(record, now)])), STATE_CHARS),
            cut(clean(record.table), 20),
            cut(clean(tracked or record.date), 40),
            clean(record.time_step),
            cut(clean(self._metric or record.likely), 24),
            clean(self._value(record)),
            duration_text(record.duration_s) or "",
        )

    def _value(self, record: Record) -> object:
        """The last value of the metric that the list shows."""
        return record.metrics.get(self._metric) if self._metric else record.likely_value

    def _sort_key(self, record: Record) -> tuple[Any, ...]:
        if self._sort == "live":
            return (0,)  # keep the order of the source
        if self._sort == "table":
            return (record.table, -record.opened)
        values = {"step": record.time_step, "took": record.duration_s, "value": self._value(record)}
        value = values[self._sort]
        if not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - texts and nan last
            return (True, 0.0)
        return (False, -value)

    def _curves_text(
        self, found: tuple[str, list[tuple[RunName, Points]]] | None, width: int, height: int
    ) -> Text:
        if found is None:
            return Text("no runs")
        metric, curves = found
        text = _chart([points for _, points in curves], width, height - len(curves))
        head = Text(f"{cut(clean(metric or 'no metric'), width)}\n", style="bold")
        for place, ((table, index), _) in enumerate(curves):
            name = cut(clean(f"{table}/{index}"), width - 4)
            text.append(f"\n{LETTERS[place]} {name}", style=COLOURS[place])
        return head + text

    def _log_text(self, found: str | None, *_: int) -> Text:
        return Text(found or "nothing printed through the logger yet")

    def _system_text(self, found: dict[str, Points] | None, width: int, height: int) -> Text:
        shown = [(name, points) for name, points in (found or {}).items() if points]
        if not shown:
            return Text("no system.csv yet: the agent samples a run every 15 seconds")
        each = max(height // len(shown) - 1, 3)
        text = Text()
        for place, (name, points) in enumerate(shown):
            last = points[-1][1]
            label = f"{last / 1e9:.2f} GB" if name.endswith("bytes") else f"{last:.0f} %"
            text.append(f"{name}: {label}\n", style=COLOURS[place])
            text += _chart([points], width, each - 1, place) + Text("\n")
        return text

    def _fleet_text(self, machines: list[dict[str, Any]] | None, width: int, _: int) -> Text:
        if not machines:
            return Text("no machine replicates into this data root")
        text = Text()
        for machine in machines:
            heard, count = duration_text(machine["age_s"]), len(machine["runs"])
            host, version = clean(machine["host"]), clean(machine["version"])
            words = (host, f"heard {heard} ago", f"{count} run(s)", version)
            text.append(cut("  ".join(words), width) + "\n")
        return text

    def _highlighted_key(self) -> str:
        row = self._table.cursor_row
        return self._order[row] if 0 <= row < len(self._order) else ""

    def _highlighted(self) -> RunName | None:
        table, _, index = self._highlighted_key().partition("\0")
        return (table, index) if index else None

    def on_data_table_row_highlighted(self) -> None:
        self._look()

    def on_tabbed_content_tab_activated(self) -> None:
        self._look()

    def on_resize(self) -> None:
        self._look()

    def action_tab(self, name: str) -> None:
        """Open a tab."""
        self.query_one(TabbedContent).active = name

    def action_mark(self) -> None:
        """Mark the highlighted run for the curves, or remove the mark."""
        if isinstance(self.focused, Input):
            self.focused.insert_text_at_cursor(" ")
            return
        run = None if isinstance(self.screen, Choose) else self._highlighted()
        if run is not None:
            (self._marked.remove if run in self._marked else self._marked.append)(run)
            self._look()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._look()

    def action_metric(self) -> None:
        """Choose the metric for the curves and the list."""
        names = self._source.metrics(self._seen.records)

        def chosen(name: str | None) -> None:
            if name:
                self._metric = name
                self._look()

        self.push_screen(Choose(names), chosen)

    def action_help(self) -> None:
        """Show the keys."""
        self.notify(HELP, title="keys", timeout=15, markup=False)

    def action_filter(self) -> None:
        """Ask for a filter."""
        box = self.query_one("#filter", Input)
        box.value = self._where or ""
        box.display = True
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._where = event.value.strip() or None
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self._table.focus()
        self._look()

    def action_clear(self) -> None:
        """Close the filter's input, or else clear the filter, or else the marks."""
        if isinstance(self.screen, Choose):
            self.screen.dismiss("")
        elif isinstance(self.focused, Input):
            self._close_filter()
        else:
            if self._where is None:
                self._marked.clear()
            self._where = None
            self._look()


class Choose(ModalScreen[str]):
    """A list of names of which the user chooses one; escape chooses none."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss('')", "Back")]
    CSS = "Choose { align: center middle; } OptionList { width: 60%; height: 70%; border: round $accent; }"

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        yield OptionList(*(Text(clean(name)) for name in self._names))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])


@dataclass(slots=True)
class Seen:
    """The result of one read."""

    records: list[Record] = field(default_factory=list)  # in the order of the list
    problem: str = ""  # why they could not be read
    body: Any = None  # content of the open tab: curves, columns of a machine, lines, machines


def _styled(column: str, cell: str) -> Text:
    style = (
        STATE_STYLES.get(cell.partition(";")[0], "") if column == "state" else "bold" if not column else ""
    )
    return Text(cell, style=style, justify="right" if column in {"step", "value", "took"} else "left")


def _chart(curves: list[Points], width: int, height: int, colour: int = 0) -> Text:
    """Curves with the labels of both axes, in `height` lines."""
    frame = draw(curves, max(width - MARGIN - 2, 8), max(height - 2, 2))
    if frame is None:
        return Text("no numbers yet")
    text = Text()
    for row, line in enumerate(frame.cells):
        label = f"{frame.high:.4g}" if row == 0 else f"{frame.low:.4g}" if row == len(frame.cells) - 1 else ""
        text.append(f"{label:>{MARGIN}}│")
        for mark, who in line:
            text.append(mark, style=COLOURS[(who + colour) % len(COLOURS)] if who >= 0 else "")
        text.append("\n")
    begin, end = f"{frame.first:.6g}", f"{frame.last:.6g}"
    text.append(" " * (MARGIN + 1) + begin + end.rjust(max(len(frame.cells[0]) - len(begin), len(end) + 1)))
    return text
