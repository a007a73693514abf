"""The dashboard, driven by its keys; what it shows is read off its widgets."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.waiting import TIME_FACTOR
from support.written_runs import MakeRun
from textual.pilot import Pilot
from textual.widgets import DataTable, OptionList, Static

from rla_client.database.database import Database
from rla_client.database.records.fleet import FLEET_FOLDER
from rla_client.top.app import Choose, TopApp
from rla_client.top.runs_on_screen import RunsOnScreen

PATIENCE_S = 30.0 * TIME_FACTOR


def app_of(root: Path) -> TopApp:
    database = Database(root)
    return TopApp(RunsOnScreen(root, lambda where: database.records(where=where)))


def played(root: Path, play: Callable[[TopApp, Pilot[None]], Awaitable[None]]) -> None:
    import asyncio

    async def run() -> None:
        app = app_of(root)
        async with app.run_test(size=(100, 40)) as pilot:
            await play(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


def rows(app: TopApp) -> list[list[str]]:
    table = app.query_one("#runs", DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def body(app: TopApp, tab: str) -> str:
    return str(app.query_one(f"#{tab}-body", Static).content)


def message(app: TopApp) -> str:
    return str(app.query_one("#message", Static).content)


def write_csv(root: Path, index: str, rows: list[str]) -> Path:
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("time-step,return\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_runs_are_listed_live_ones_first(root: Path, make_run: MakeRun) -> None:
    make_run(number=1, info="&seed=1", state="running", updated=time.time())
    make_run(number=2, info="&seed=2")

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 2)
        assert [row[1] for row in rows(app)] == ["running", "finished"]
        assert [row[3] for row in rows(app)] == ["seed=1", "seed=2"]
        assert message(app).startswith("2 runs, 1 live")

    played(root, play)


def test_a_part_of_a_run_that_is_dead_stands_behind_its_state(root: Path, make_run: MakeRun) -> None:
    index = make_run(state="running", updated=time.time())
    part = root / "log" / "task" / index / "run.part.b-1.json"
    part.write_text(json.dumps({"state": "killed", "ranks": {"rank4": {"state": "killed"}}}))

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 1)
        assert rows(app)[0][1] == "running; 1 of 2 parts; b-1: rank4 killed"

    played(root, play)


def test_a_row_that_is_added_is_shown(root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1, state="running", updated=time.time())
    path = write_csv(root, index, ["1,10.5"])

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(rows(app)) and rows(app)[0][4] == "1")
        with path.open("a") as file:
            file.write("2,20.25\n3,")  # the second is not whole yet
        await until(pilot, lambda: rows(app)[0][4] == "2")
        assert rows(app)[0][6] == "20.25"
        await until(pilot, lambda: "20.25" in body(app, "curves"))

    played(root, play)


def test_marked_runs_share_a_chart(root: Path, make_run: MakeRun) -> None:
    for number in range(3):
        write_csv(root, make_run(number=number, info=f"&seed={number}"), ["1,1", f"2,{number + 2}"])

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 3)
        await until(pilot, lambda: "seed=2" in body(app, "curves"))
        await pilot.press("space", "down", "down", "space")
        await until(pilot, lambda: [row[0] for row in rows(app)] == ["a", "", "b"])
        await until(pilot, lambda: "b task" in body(app, "curves"))
        text = body(app, "curves")
        assert "seed=2" in text
        assert "seed=0" in text
        assert "seed=1" not in text
        await pilot.press("escape")
        await until(pilot, lambda: [row[0] for row in rows(app)] == ["", "", ""])

    played(root, play)


@pytest.mark.slow
def test_a_filter_and_a_wrong_one(root: Path, make_run: MakeRun) -> None:
    for number in range(3):
        make_run(number=number, info=f"&seed={number}", params={"seed": number})

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 3)
        await pilot.press("slash", *"seed", "space", "greater_than_sign", "space", "0", "enter")
        await until(pilot, lambda: len(rows(app)) == 2)
        assert "filter: seed > 0" in message(app)
        await pilot.press("slash", *(["backspace"] * 2), "enter")
        await until(pilot, lambda: "not understood" in message(app))
        assert len(rows(app)) == 2, "what was there stays"
        await pilot.press("escape")
        await until(pilot, lambda: len(rows(app)) == 3)

    played(root, play)


def test_a_metric_is_chosen_for_list_and_curves(root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1)
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("time-step,return,loss\n1,5,0.25\n2,6,0.125\n")

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(rows(app)) and rows(app)[0][5] == "return")
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: not isinstance(app.screen, Choose) and rows(app)[0][5] == "loss")
        assert rows(app)[0][6] == "0.125"
        await until(pilot, lambda: body(app, "curves").startswith("loss"))

    played(root, play)


def test_sorting_by_value(root: Path, make_run: MakeRun) -> None:
    for number, value in enumerate(("3", "nan", "7")):
        write_csv(root, make_run(number=number, info=f"&seed={number}"), [f"1,{value}"])

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 3)
        await pilot.press("s")
        await until(pilot, lambda: [row[3] for row in rows(app)] == ["seed=2", "seed=0", "seed=1"])

    played(root, play)


def test_sorting_by_the_value_that_is_shown(root: Path, make_run: MakeRun) -> None:
    for number, loss in enumerate((0.5, 0.75, 0.25)):
        path = write_csv(root, make_run(number=number, info=f"&seed={number}"), [])
        path.write_text(f"time-step,return,loss\n1,{number},{loss}\n")

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 3)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await pilot.press("space")  # not meant for the list behind
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: not isinstance(app.screen, Choose) and rows(app)[0][5] == "loss")
        await pilot.press("s")
        await until(pilot, lambda: [row[6] for row in rows(app)] == ["0.75", "0.5", "0.25"])
        assert [row[0] for row in rows(app)] == ["", "", ""]

    played(root, play)


def test_hostile_names_and_logs_are_shown_as_they_are(root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1, info="&name=[red]x[bold]")
    log = root / "log" / "task" / index / "log.txt"
    log.write_bytes(b"[blink]first[/]\n\x1b[31mred\x1b[0m \xff\n")

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(rows(app)))
        assert rows(app)[0][3] == "name=[red]x[bold]"
        await pilot.press("2")
        await until(pilot, lambda: "first" in body(app, "log"))
        assert body(app, "log") == "[blink]first[/]\n?[31mred?[0m \N{REPLACEMENT CHARACTER}"

    played(root, play)


@pytest.mark.slow
def test_the_machine_and_the_fleet(root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1)
    system = root / "log" / "task" / index / "system.csv"
    system.write_text("timestamp,seconds,cpu_percent,rss_bytes\n1,0,,2e9\n16,15,250,3e9\n31,30,50,4e9\n")
    (root / FLEET_FOLDER).mkdir()
    (root / FLEET_FOLDER / "node.json").write_text(
        json.dumps({"host": "node-7", "version": "0.1.0", "runs": [{}, {}]})
    )

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(rows(app)))
        await pilot.press("3")
        await until(pilot, lambda: "cpu_percent: 50 %" in body(app, "system"))
        assert "rss_bytes: 4.00 GB" in body(app, "system")
        await pilot.press("4")
        await until(pilot, lambda: "node-7" in body(app, "fleet"))
        assert "2 run(s)" in body(app, "fleet")

    played(root, play)


@pytest.mark.slow
def test_a_run_that_is_removed_while_it_is_shown(root: Path, make_run: MakeRun) -> None:
    gone = make_run(number=1, info="&seed=1")
    make_run(number=2, info="&seed=2")

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(app)) == 2)
        await pilot.press("down", "space")
        await until(pilot, lambda: "seed=1" in body(app, "curves"))
        for kind in os.listdir(root):
            folder = root / kind / "task" / gone
            shutil.rmtree(folder, ignore_errors=True)
            for file in folder.parent.glob(f"{folder.name}.*"):
                file.unlink()
        await until(pilot, lambda: len(rows(app)) == 1)
        await until(pilot, lambda: "seed=2" in body(app, "curves"))

    played(root, play)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (20, 6), (250, 80)])
def test_any_size_of_terminal(root: Path, make_run: MakeRun, size: tuple[int, int]) -> None:
    make_run(number=1)

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(rows(app)))
        await pilot.resize_terminal(*size)
        for key in "1234":
            await pilot.press(key)
            await pilot.pause()

    played(root, play)


def test_a_look_while_the_app_ends(root: Path) -> None:
    (root / "log").mkdir()

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: message(app).startswith("0 runs"))
        await app.query_one("#runs").remove()
        app._look()
        await pilot.pause(0.02)

    played(root, play)


@pytest.mark.slow
def test_an_empty_database(root: Path) -> None:
    (root / "log").mkdir()

    async def play(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: message(app).startswith("0 runs"))
        await pilot.press("space", "m", "escape", "s", "2", "3", "4", "question_mark")

    played(root, play)
