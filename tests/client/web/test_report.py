"""`rla report`: one file that a browser opens from a disk; and the same in a notebook."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.page_runs import HOSTILE, LiveRun, write_hostile, write_page_run, write_sweep
from support.page_view import View
from support.waiting import wait_until

from rla_client import database
from rla_client.contract.errors import ArgumentError
from rla_client.database.records.notes import change_note
from rla_client.database.records.record import MAX_CACHED_CHARS, _last
from rla_client.database.views import write_view
from rla_client.plot.bands import curve_band
from rla_client.plot.smoothing import group_curves
from rla_client.web import STATIC
from rla_client.web.bundle import bundle
from rla_client.web.importance import importance
from rla_client.web.report import CUT, MAX_BYTES, Made, make_report, view_of
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.page_fixtures import Faults

Rla = Callable[..., subprocess.CompletedProcess[str]]
slow = pytest.mark.slow
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f6"
    "45400000000049454e44ae426082"
)


class Opened(View):
    """A report in a browser: the page's own view of it, without a server."""

    def __init__(self, page: Page, faults: Faults, path: Path) -> None:
        faults.allow(f"request to {re.escape(path.as_uri())}$")
        self.page = page
        page.goto(path.as_uri())
        page.wait_for_function("() => window.rla?.names.fields.length")


def write(rla: Rla, root: Path, out: Path, *words: str) -> Path:
    done = rla("report", str(out), "-d", str(root), *words)
    assert done.returncode == 0, done.stderr
    return out


def test_every_module_of_the_page_fits_into_one_script() -> None:
    script = bundle()
    for path in STATIC.glob("*.js"):
        if path.name != "api.js":
            assert f'modules["{path.name}"] = ' in script, path.name
    assert "</script" not in script.lower(), "it would end the script"
    assert "fetch(" not in script, "nothing is asked of a server"


def test_the_file_holds_no_text_of_a_run_outside_of_its_data(root: Path) -> None:
    write_hostile(root)
    made = make_report(Site([root]), {"where": [""], "group": [HOSTILE[0]], "metrics": [HOSTILE[2]]}).decode()
    for text in HOSTILE[:3]:
        assert text not in made
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]
    assert "default-src 'none'" in policy[1]


@pytest.mark.slow
def test_what_is_too_large_without_any_curve(
    rla: Rla, root: Path, tmp_path: Path, make_run: Callable[..., str]
) -> None:
    """Random texts do not shrink: 40 runs with 300 kB each; the newest fit, and it says how many do not."""
    rng = np.random.default_rng(1)
    for number in range(40):
        texts = {f"p{place}": rng.bytes(1500).hex() for place in range(100)}
        make_run(number=number, info=f"&n={number}", params=texts, rows=3)
    done = rla("report", str(tmp_path / "out.html"), "-d", str(root))
    assert done.returncode == 0, done.stderr
    size = (tmp_path / "out.html").stat().st_size
    assert MAX_BYTES / 3 < size <= MAX_BYTES
    said = re.search(r"without the (\d+) oldest runs", done.stdout)
    assert said is not None, done.stdout
    assert 0 < int(said[1]) < 40


def test_one_run_with_more_than_a_file_holds(
    rla: Rla, root: Path, tmp_path: Path, make_run: Callable[..., str]
) -> None:
    """A note and a parameter of 2 MB each that do not shrink: cut, as the command and the page say."""
    rng = np.random.default_rng(1)
    index = make_run(params={"text": rng.bytes(1_000_000).hex(), "lr": 0.5})
    change_note(root, f"task/{index}", note=rng.bytes(1_000_000).hex())
    done = rla("report", str(tmp_path / "out.html"), "-d", str(root))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.html").stat().st_size < MAX_BYTES
    assert f"; {CUT}" in done.stdout
    packed = re.search(rb'id="data">([^<]*)<', (tmp_path / "out.html").read_bytes())
    assert packed is not None
    told = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert CUT in told["runs"]["problems"]


@pytest.mark.slow
def test_large_parameters_are_read_a_few_times_a_run(root: Path, make_run: Callable[..., str]) -> None:
    """And not once for each name of any: that took minutes."""
    for number in range(30):
        texts = {f"p{number}-{place}": "x" * MAX_CACHED_CHARS for place in range(6)}
        make_run(number=number, info=f"&n={number}", params=texts, rows=3)
    _last.cache_clear()
    made = make_report(Site([root]), {})
    assert b"p29-0" not in made, "packed"
    assert 30 <= _last.cache_info().misses <= 30 * 20, "names: 180"
    _last.cache_clear()
    site = Site([root])
    site.look(wait=True)
    importance(site, {"runs": [entry.number for entry in site.entries()], "metric": "return"})
    assert 30 <= _last.cache_info().misses <= 30 * 5


def test_a_view_by_its_name(root: Path) -> None:
    write_sweep(root)
    write_view(root, "mine", "where=lr+%3D%3D+0.1&group=lr")
    site = Site([root])
    assert view_of(site, "mine", {"group": ["seed"]}) == {"where": ["lr == 0.1"], "group": ["seed"]}
    with pytest.raises(ArgumentError, match="there is no view 'other'; there are mine"):
        view_of(site, "other", {})


def test_no_run_and_no_database_are_told(rla: Rla, root: Path, tmp_path: Path) -> None:
    write_page_run(root, 0)
    done = rla("report", str(tmp_path / "x.html"), "-d", str(root), "--where", "seed == 99")
    assert done.returncode != 0
    assert "no run" in done.stderr
    assert not (tmp_path / "x.html").exists()


@slow
def test_a_report_shows_what_the_page_shows(
    rla: Rla, root: Path, page: Page, faults: Faults, tmp_path: Path
) -> None:
    indices = write_sweep(root)
    results = root / "results" / "task" / indices[0]
    results.mkdir(parents=True)
    (results / "5-figure.png").write_bytes(PNG)
    opened = Opened(page, faults, write(rla, root, tmp_path / "out.html"))
    shown = opened.shown("return", 6)
    for number, ys in zip(shown["numbers"], shown["data"][1:], strict=True):
        expected = [(0.1, 0.01)[number // 3] * step + number % 3 for step in range(50)]
        assert ys == pytest.approx(expected, rel=1e-6)
    opened.head("return").click()
    assert opened.column("return")[0] == "6.9"
    opened.row(4).locator("input.choose").click()
    assert opened.shown("loss", 1)["numbers"] == [4]
    opened.row(4).locator("input.choose").click()
    opened.shown("loss", 6)
    page.check("input[name=logY]")
    opened.until("loss", "chart.plot.scales.y.distr === 3")
    opened.drag("loss", 0.2, 0.5)
    opened.until("loss", "chart.plot.scales.x.max < 30")
    page.keyboard.press("0")
    opened.until("loss", "chart.plot.scales.x.max > 45")
    assert page.locator("input[name=where]").is_hidden(), "what needs a server is not offered"
    with page.expect_download() as waiting:
        opened.panel("loss").get_by_role("button", name="Save as SVG").click()
    assert len(ET.parse(waiting.value.path()).findall(".//{http://www.w3.org/2000/svg}polyline")) == 6
    opened.row(0).locator("a").click()
    page.get_by_role("row", name="net.width 64").wait_for()
    page.get_by_role("tab", name="Media").click()
    page.wait_for_function("() => document.querySelector('figure img')?.naturalWidth === 1")
    assert page.get_by_role("tab").count() == 2
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
        }"""
    )
    faults.allow("policy:|Content Security Policy")
    assert page.evaluate("() => window.hacked") is None, "its policy lets no other script run"


@slow
def test_a_report_of_groups_has_the_bands_of_rla_plot(
    rla: Rla, root: Path, page: Page, faults: Faults, tmp_path: Path
) -> None:
    write_sweep(root, seeds=5)
    opened = Opened(page, faults, write(rla, root, tmp_path / "out.html", "--group", "lr"))
    shown = opened.shown("return", 2)
    assert [label.partition(" (")[0] for label in shown["labels"]] == ["lr=0.01", "lr=0.1"]
    curves = [(np.arange(50.0), 0.01 * np.arange(50.0) + seed) for seed in range(5)]
    expected = curve_band(group_curves(curves, 256, 0.0)[1], "ci")
    for drawn, right in zip(shown["data"][1:4], expected, strict=True):
        assert drawn == pytest.approx(np.asarray(right).tolist(), rel=1e-5)
    page.get_by_role("link", name="Runs").click()
    page.wait_for_function("() => location.hash.startsWith('#/runs')")
    assert opened.shown("return", 2)["labels"] == shown["labels"]
    assert page.locator("#runs-table .row.group").count() == 2


@slow
def test_hostile_runs_in_a_report_are_text(root: Path, page: Page, faults: Faults, tmp_path: Path) -> None:
    for place, index in enumerate(write_hostile(root)):
        table = next(path.name for path in (root / "log").iterdir() if (path / index).is_dir())
        results = root / "results" / table / index
        results.mkdir(parents=True)
        (results / f"{place}-x.svg").write_text(
            '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="window.hacked=1">'
            "<script>top.hacked=1</script></svg>"
        )
    path = tmp_path / "out.html"
    path.write_bytes(make_report(Site([root]), {"metrics": [""]}))
    opened = Opened(page, faults, path)
    text = page.locator("#runs").inner_text()
    for hostile in HOSTILE[:5]:
        assert hostile in text
    page.evaluate("(names) => window.rla.setColumns(names)", list(HOSTILE))
    opened.shown("return")
    page.evaluate(
        "() => { for (const panel of window.rla.panels.panels.values()) panel.node.scrollIntoView(); }"
    )
    opened.row(0).locator("a").click()
    page.get_by_role("tab", name="Media").click()
    page.wait_for_function("() => document.querySelector('figure img')?.naturalWidth > 0")
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("#page script, #page iframe, #page svg").count() == 0


@pytest.mark.further
@slow
def test_fifty_runs_fit(root: Path, page: Page, faults: Faults, tmp_path: Path) -> None:
    """More than fit: 60 runs of 25 metrics, 1,000 rows each, which do not repeat, and pictures."""
    random = np.random.default_rng(0)
    for number in range(60):
        columns = {f"m{place}": random.normal(size=1000).tolist() for place in range(25)}
        index = write_page_run(root, number, columns)
        results = root / "results" / "task" / index
        results.mkdir(parents=True)
        (results / "1-noise.png").write_bytes(PNG[:-12] + random.bytes(60_000) + PNG[-12:])
    made = make_report(Site([root]), {})
    assert 500_000 < len(made) <= MAX_BYTES
    path = tmp_path / "out.html"
    path.write_bytes(made)
    opened = Opened(page, faults, path)
    shown = opened.shown("m0", 50)
    assert min(shown["numbers"]) == 10, "the newest"
    assert len(shown["data"][0]) >= 32
    assert page.locator("section.panel").count() == 25


@slow
def test_follow_writes_it_again(root: Path, tmp_path: Path, own_state: None) -> None:
    live = LiveRun(root)
    out = tmp_path / "out.html"
    command = [
        sys.executable,
        "-m",
        "rla_client.cli.app",
        "report",
        str(out),
        "-d",
        str(root),
        "--follow",
        "--every",
        "1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        wait_until(out.exists)
        first = out.read_bytes()
        assert b'http-equiv="refresh" content="1"' in first
        live.append(77.0)
        wait_until(lambda: out.read_bytes() != first)
    finally:
        process.send_signal(2)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.html"]


@slow
def test_a_notebook_shows_the_same_panel_offline(
    root: Path, page: Page, faults: Faults, tmp_path: Path, own_state: None
) -> None:
    write_sweep(root)
    frame = database.open(root).curves()
    assert set(frame["metric"]) == {"return"}
    assert frame["table"].nunique() == 2
    some = frame[frame["table"] == "task"].show()
    shown = database.open(root).curves(metrics=["return", "loss"]).show(group="lr", band="std")
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><h1>cells</h1>{some._repr_html_()}{shown._repr_html_()}")
    assert html.escape("<script>") in path.read_text()
    faults.allow(f"request to {re.escape(path.as_uri())}$")
    page.goto(path.as_uri())
    page.wait_for_function("() => document.querySelectorAll('iframe').length === 2")
    frames = page.frames[1:]
    for inner, curves, panels in zip(frames, (3, 2), (1, 2), strict=True):
        inner.wait_for_function(
            "(count) => document.querySelector('section.panel')?.chart?.curves.length === count", arg=curves
        )
        assert inner.locator("section.panel").count() == panels
        assert inner.locator("#runs-table").is_hidden()
        assert (
            inner.evaluate("() => { try { return parent.document.title; } catch { return 'locked'; } }")
            == "locked"
        )
    ys = frames[0].evaluate("() => document.querySelector('section.panel').chart.data[1]")
    assert ys[-1] == pytest.approx(4.9 + 0, abs=2.01)


def test_what_a_report_holds_is_said() -> None:
    assert Made(b"", 3, 0, 1, 0, 0).text == "3 run(s), curves of 1 metric(s)"
    assert Made(b"", 3, 2, 1, 7, 4).text == (
        "3 run(s), curves of 1 metric(s), 4 picture(s); "
        "without the 2 oldest runs and curves of 7 metrics, which do not fit"
    )
    assert Made(b"", 1, 0, 1, 0, 0, cut=True).text == f"1 run(s), curves of 1 metric(s); {CUT}"
