"""The page as somebody sees it who sits before it: its list, its panels, its fields. For tests that click."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.page_lab import PageServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page

ROWS = """() => {
    const heads = [...document.querySelectorAll("#runs-table .row.head [data-column]")];
    const names = heads.map((head) => head.dataset.column);
    return [...document.querySelectorAll("#runs-table .rows > .row")].map((row) => {
        const cells = [...row.querySelectorAll("[role=cell]:not(.tools)")].map((cell) => cell.textContent);
        return {number: Number(row.dataset.number ?? -1), group: row.dataset.group ?? "",
                place: Number(row.getAttribute("aria-rowindex")) - 2,
                ...Object.fromEntries(names.map((name, at) => [`=${name}`, cells[at]]))};
    });
}"""


def read_columns(root: Path, table: str, index: str) -> dict[str, list[float]]:
    """progress.csv as numbers, by column; NaN where a cell is empty."""
    with (root / "log" / table / index / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) if row[name] else math.nan for row in rows] for name in rows[0]}


def box_of(locator: Locator) -> FloatRect:
    """Where an element is, once it stays in the page: one that is just drawn anew is nowhere."""
    return wait_until(lambda: locator.bounding_box(timeout=60_000), 60)


class View:
    """The page of runs in a browser.

    Args:
        page: of Playwright.
        server: that it is from.
        query: behind `#/runs?`.
    """

    def __init__(self, page: Page, server: PageServer, query: str = "") -> None:
        self.page = page
        self.server = server
        page.goto(f"{server.url}#/runs?{query}")
        page.wait_for_function("() => window.rla?.names.fields.length")

    # the list
    def rows(self) -> list[dict[str, Any]]:
        """Rows that are elements now: number, group, place, and a cell's text as `=COLUMN`."""
        found: list[dict[str, Any]] = self.page.evaluate(ROWS)
        return found

    def column(self, name: str) -> list[str]:
        """Texts of one column, top to bottom."""
        return [row[f"={name}"] for row in self.rows()]

    def columns(self) -> list[str]:
        """Names of the columns, left to right."""
        return [name[1:] for name in (self.rows() or [{}])[0] if name.startswith("=")]

    def row(self, number: int) -> Locator:
        return self.page.locator(f"#runs-table .row[data-number='{number}']")

    def head(self, name: str) -> Locator:
        return self.page.locator(f"#runs-table .row.head [data-column='{name}']")

    def number_of(self, index: str) -> int:
        """Of a run on this page."""
        told = self.server.ask("runs")
        return int(dict(zip(told["index"], told["number"], strict=True))[index])

    def until_numbers(self, numbers: Sequence[int]) -> None:
        """Wait until the list has these runs, in this order."""
        self.page.wait_for_function(
            "(wanted) => window.rla.rows().map((row) => row.number).join() === wanted",
            arg=",".join(map(str, numbers)),
        )
        assert [row["number"] for row in self.rows() if row["number"] >= 0] == list(numbers)

    # fields
    def field(self, name: str) -> Locator:
        return self.page.locator(f"input[name='{name}'], select[name='{name}'], button[name='{name}']")

    def group(self, text: str) -> None:
        self.field("group").fill(text)
        self.field("group").press("Enter")
        self.field("group").blur()

    def error(self) -> str:
        return self.page.locator("#runs [role=alert]").inner_text()

    # panels
    def panel(self, metric: str) -> Locator:
        return self.page.locator(f"section.panel[data-metric='{metric}']")

    def until(self, metric: str, condition: str, arg: Any = None) -> None:
        """Wait until a condition holds of a panel's `chart`; `arg` is what was given."""
        self.page.wait_for_function(
            "([metric, arg]) => { const chart = [...document.querySelectorAll('section.panel')]"
            f".find((one) => one.dataset.metric === metric)?.chart; return chart && ({condition}); }}",
            arg=[metric, arg],
        )

    def shown(self, metric: str, curves: int | None = None) -> dict[str, Any]:
        """What a panel draws: `data`, `labels`, `colours`, …; waits for so many curves."""
        self.until(metric, "arg === null || chart.curves.length === arg", curves)
        found: dict[str, Any] = self.page.evaluate(
            """(metric) => {
                const panels = [...document.querySelectorAll("section.panel")];
                const panel = panels.find((one) => one.dataset.metric === metric);
                const {chart} = panel;
                const told = (scale) => ({min: scale.min, max: scale.max, distr: scale.distr});
                return {
                    data: [...chart.data].map((column) => [...column]), labels: chart.labels,
                    colours: chart.curves.map((curve) => curve.colour),
                    marks: chart.curves.map((curve) => curve.marks ?? []),
                    numbers: panel.panel.head.curves.map((curve) => curve.number ?? curve.numbers),
                    kind: panel.panel.head.kind, legend: panel.querySelector(".legend").textContent,
                    x: told(chart.plot.scales.x), y: told(chart.plot.scales.y),
                };
            }""",
            metric,
        )
        return found

    def curve(self, metric: str, number: int) -> tuple[list[float], list[float]]:
        """x and y of the points of one run in a panel."""
        shown = self.shown(metric)
        series = shown["data"][1 + shown["numbers"].index(number)]
        points = [(x, y) for x, y in zip(shown["data"][0], series, strict=True) if y is not None]
        return [x for x, _ in points], [y for _, y in points]

    def drag(self, metric: str, low: float, high: float) -> None:
        """Drag over a panel from one share of its width to another."""
        over = self.panel(metric).locator(".u-over")
        over.scroll_into_view_if_needed()
        box = box_of(over)
        y = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + low * box["width"], y)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + (low + high) / 2 * box["width"], y)
        self.page.mouse.move(box["x"] + high * box["width"], y)
        self.page.mouse.up()
