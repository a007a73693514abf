"""Tables of a run's results: read, searched, filtered, sorted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.page_lab import PageServer
from support.page_runs import HOSTILE, write_page_run

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.web import table_files
from rla_client.web.result_tables import table
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

CSV = 'name,score,note\nb,2,\na,10,x\nc,-1.5,many words\n"d,e",nan,"two\nlines"\n'


@pytest.fixture
def results(root: Path) -> Path:
    """The results of one run."""
    folder = root / "results" / "task" / write_page_run(root, 0)
    folder.mkdir(parents=True)
    (folder / "t.csv").write_text(CSV)
    return folder


def ask(root: Path, path: str, **asked: Any) -> dict[str, Any]:
    site = Site([root])
    site.look_now()
    entry = site.entries()[0]
    return table(site, {"run": f"0/task/{entry.record.index}", "path": path, **asked})


def names(found: dict[str, Any]) -> list[Any]:
    return [row[0] for row in found["rows"]]


def test_csv(root: Path, results: Path) -> None:
    found = ask(root, "t.csv")
    assert found["columns"] == ["name", "score", "note"]
    assert found["rows"][3] == ["d,e", "nan", "two\nlines"]
    assert (found["total"], found["fitting"], found["cut"]) == (4, 4, False)


def test_sorting_goes_by_size_and_what_is_not_there_stands_last(root: Path, results: Path) -> None:
    assert names(ask(root, "t.csv", sort=1)) == ["c", "b", "a", "d,e"]
    assert names(ask(root, "t.csv", sort=2)) == ["c", "d,e", "a", "b"]
    assert names(ask(root, "t.csv", sort=2, down=True))[-1] == "b"


@pytest.mark.parametrize(
    ("asked", "fitting"),
    [
        ({"search": "MANY"}, ["c"]),
        ({"filters": {"0": "a"}}, ["a"]),
        ({"filters": {"1": "> 1"}}, ["b", "a"]),
        ({"filters": {"1": ">= 2", "0": "b"}}, ["b"]),
        ({"filters": {"1": "!= 2"}}, ["a", "c", "d,e"]),
        ({"filters": {"0": "== a"}}, ["a"]),
        ({"filters": {"1": "  "}}, ["b", "a", "c", "d,e"]),
    ],
)
def test_filters(root: Path, results: Path, asked: dict[str, Any], fitting: list[str]) -> None:
    assert names(ask(root, "t.csv", **asked)) == fitting


def test_pieces_of_a_long_table(root: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (results / "long.csv").write_text("n\n" + "".join(f"{number}\n" for number in range(5000)))
    found = ask(root, "long.csv", **{"from": 4990, "count": 100})
    assert names(found) == [str(number) for number in range(4990, 5000)]
    monkeypatch.setattr(table_files, "MAX_ROWS", 100)
    monkeypatch.setattr(table_files, "MAX_BYTES", 2000)
    found = ask(root, "long.csv")
    assert (found["total"], found["cut"]) == (100, True)


def test_json_lines(root: Path, results: Path) -> None:
    lines = [{"a": 1, "b": {"c": [1, 2]}}, {"a": 2**60, "d": True}]
    (results / "t.jsonl").write_text("\n".join([*map(json.dumps, lines), "no json", "[" * 5000, ""]))
    found = ask(root, "t.jsonl")
    assert found["columns"] == ["a", "b", "d", "line"]
    assert found["rows"][0] == [1, '{"c": [1, 2]}', None, None]
    assert found["rows"][1] == [str(2**60), None, True, None] or found["rows"][1][2] is True
    assert found["rows"][2][3] == "no json"


def test_parquet(root: Path, results: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    pq.write_table(pa.table({"n": [3, 1, 2], "text": ["x", None, "z"]}), results / "t.parquet")
    found = ask(root, "t.parquet", sort=0)
    assert found["rows"] == [[1, None], [2, "z"], [3, "x"]]
    when = pa.array([datetime(2026, 11, day) for day in (3, 20)])  # noqa: DTZ001 - as pandas writes them
    pq.write_table(pa.table({"when": when, "list": [[1, 2], [3]]}), results / "times.parquet")
    assert ask(root, "times.parquet")["rows"][0] == ["2026-11-03 00:00:00", "[1, 2]"]
    assert ask(root, "times.parquet", filters={"0": "> 2026-11-05"})["fitting"] == 1
    (results / "bad.parquet").write_bytes(b"PAR1 nothing of it")
    with pytest.raises(ArgumentError, match="cannot be read"):
        ask(root, "bad.parquet")


@pytest.mark.parametrize(
    "asked",
    [
        {"path": "t.txt"},
        {"sort": 3},
        {"sort": "x"},
        {"filters": {"9": "a"}},
        {"filters": {"0": 3}},
        {"filters": "x"},
        {"from": -1},
        {"count": "x"},
    ],
)
def test_what_is_no_question_is_refused(root: Path, results: Path, asked: dict[str, Any]) -> None:
    (results / "t.txt").write_text("x")
    with pytest.raises(ArgumentError):
        ask(root, **{"path": "t.csv", **asked})


def test_no_path_leads_out(root: Path, results: Path) -> None:
    (results / "link.csv").symlink_to("/etc/passwd")
    for path in ("link.csv", "../../../log/task/x.csv", "/etc/passwd"):
        with pytest.raises((ArgumentError, DatabaseError, FileNotFoundError)):
            ask(root, path)


@pytest.mark.slow
def test_a_table_is_opened_sorted_and_filtered(
    page_server: Callable[..., PageServer], root: Path, results: Path, page: Page
) -> None:
    rows = [[text, number] for number, text in enumerate(HOSTILE)]
    (results / "h.jsonl").write_text("\n".join(json.dumps({"text": text, "n": n}) for text, n in rows))
    (results / "cm.csv").write_text("actual,predicted cat,predicted dog\ncat,3,1\ndog,0,4\n")
    server = page_server(root)
    server.ask("runs")
    page.goto(server.url)
    page.locator("#runs-table .row[data-number] a").first.click()
    page.get_by_role("tab", name="Tables").click()
    cells = page.locator("table.data tbody td:first-child")
    page.get_by_label("Table", exact=True).select_option("t.csv")
    page.get_by_text("4 rows").wait_for()
    page.get_by_role("button", name="score").click()
    page.wait_for_function("() => document.querySelector('table.data tbody td').textContent === 'c'")
    page.get_by_label("Filter of score").fill("> 1")
    page.get_by_text("2 of 4 rows").wait_for()
    assert cells.all_inner_texts() == ["b", "a"]
    page.get_by_label("Table", exact=True).select_option("h.jsonl")
    page.get_by_text(f"{len(HOSTILE)} rows").wait_for()
    assert cells.first.inner_text() == HOSTILE[0]
    page.get_by_label("Search in all columns").fill("svg")
    page.get_by_text(f"1 of {len(HOSTILE)} rows").wait_for()
    assert page.evaluate("() => window.hacked") is None
    page.get_by_label("Table", exact=True).select_option("cm.csv")
    page.get_by_label("Search in all columns").fill("")
    page.get_by_text("2 rows", exact=True).wait_for()
    cells = page.locator("table.data tbody td")
    assert [bool(one.evaluate("(cell) => cell.style.background")) for one in cells.all()] == [
        *(False, True, True),
        *(False, False, True),
    ]
