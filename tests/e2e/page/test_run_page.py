"""The page of one run, and files side by side, clicked in a browser."""

from __future__ import annotations

import io
import json
import math
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from support.page_lab import REPOSITORY, PageServer
from support.page_runs import HOSTILE, LiveRun, write_hostile, write_page_run
from support.page_view import box_of
from support.waiting import wait_until
from support.written_runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.page_fixtures import Faults

pytestmark = pytest.mark.slow
Serve = Callable[..., PageServer]
Rla = Callable[..., subprocess.CompletedProcess[str]]
TABLE = "task"
COLOURS = {5: (200, 30, 30), 10: (30, 200, 30), 100: (30, 30, 200)}  # of the picture of each step


def picture(colour: tuple[int, ...], size: tuple[int, int] = (40, 30)) -> bytes:
    from PIL import Image

    held = io.BytesIO()
    Image.new("RGB", size, colour).save(held, "PNG")
    return held.getvalue()


def run_address(server: PageServer, index: str, table: str = TABLE, query: str = "") -> str:
    parts = "/".join(quote(part, safe="") for part in f"0/{table}/{index}".split("/"))
    return f"{server.url}#/run/{parts}{f'?{query}' if query else ''}"


@dataclass
class RunView:
    """A run's page in a browser.

    Attributes:
        root: data root.
        index: of the run.
        server: that shows it.
        page: of Playwright.
    """

    root: Path
    index: str
    server: PageServer
    page: Page

    def folder(self, kind: str) -> Path:
        return self.root / kind / TABLE / self.index

    def open(self, query: str = "") -> RunView:
        self.page.goto(run_address(self.server, self.index, query=query))
        self.page.locator(".runpage h1").wait_for()
        return self

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()
        self.page.wait_for_selector(f".runpage[data-tab='{name.lower()}']")

    def until_text(self, text: str) -> None:
        self.page.wait_for_function(
            "(text) => document.getElementById('page').textContent.includes(text)", arg=text
        )


@pytest.fixture
def run(page_server: Serve, root: Path, page: Page) -> RunView:
    """A run with real pictures at three steps and code."""
    index = write_run(root, params={"lr": 0.1, "seed": 0, "net": {"width": 64}})
    results = root / "results" / TABLE / index
    (results / "5-figure.png").unlink()
    for step, colour in COLOURS.items():
        (results / f"{step}-eval.png").write_bytes(picture(colour))
    return RunView(root, index, page_server(root), page)


def test_overview(run: RunView) -> None:
    run.open()
    text = run.page.locator("#page").inner_text()
    assert "finished" in text
    assert "net.width" in text
    run.page.get_by_role("row", name="return 4.5").wait_for()
    search = run.page.get_by_label("Search in parameters and values")
    search.fill("wid")
    run.page.get_by_role("row", name="lr 0.1").wait_for(state="detached")
    assert run.page.get_by_role("row", name="net.width 64").count() == 1
    run.page.reload()
    run.page.get_by_role("row", name="net.width 64").wait_for()
    assert run.page.get_by_role("row", name="lr 0.1").count() == 0


@pytest.mark.further
def test_from_the_list_to_a_run_and_back(run: RunView) -> None:
    run.page.goto(run.server.url)
    run.page.locator("#runs-table .row[data-number] a").first.click()
    run.page.get_by_role("tab", name="Overview").wait_for()
    assert "#/run/0/task/" in run.page.url
    run.page.go_back()
    run.page.locator("#runs-table .row[data-number]").first.wait_for()


@pytest.mark.further
def test_tabs_by_keyboard_and_in_the_address(run: RunView) -> None:
    run.open()
    run.page.get_by_role("tab", name="Overview").focus()
    run.page.keyboard.press("ArrowRight")
    run.page.wait_for_selector(".runpage[data-tab=samples]")
    assert run.page.evaluate("() => document.activeElement.textContent") == "Samples"
    assert "tab=samples" in run.page.url
    run.page.keyboard.press("ArrowLeft")
    run.page.wait_for_selector(".runpage[data-tab=overview]")
    run.page.keyboard.press("ArrowLeft")
    run.page.wait_for_selector(".runpage[data-tab=system]")
    run.page.reload()
    run.page.wait_for_selector(".runpage[data-tab=system]")


def test_tags_and_note_are_written(run: RunView, rla: Rla) -> None:
    run.open()
    add = run.page.get_by_label("Add a tag")
    add.fill("best of all, paper")
    add.press("Enter")
    run.page.get_by_label("Take the tag paper away").click()
    run.page.get_by_label("Take the tag paper away").wait_for(state="detached")
    run.page.get_by_label("Note", exact=True).fill("a <b>note</b>\nof two lines")
    run.page.get_by_role("button", name="Save note").click()
    run.page.get_by_text("noted").wait_for()
    told = json.loads((run.folder("log") / "note.json").read_text())
    assert (told["tags"], told["note"]) == (["best of all"], "a <b>note</b>\nof two lines")
    (row,) = json.loads(rla("ls", "-d", str(run.root), "--json").stdout)
    assert row["tags"] == "best of all"
    run.page.reload()
    wait_until(
        lambda: run.page.get_by_label("Note", exact=True).input_value() == "a <b>note</b>\nof two lines"
    )


@pytest.mark.further
def test_a_note_that_is_being_written_is_not_taken_away(page_server: Serve, root: Path, page: Page) -> None:
    """A live run's page looks again and again; what somebody types stays."""
    live = LiveRun(root)
    view = RunView(root, live.index, page_server(root), page).open()
    page.get_by_label("Note", exact=True).fill("half a thou")
    page.get_by_label("Add a tag").fill("half")
    live.append(500.0)
    page.get_by_role("row", name="return 500").wait_for()
    assert page.get_by_label("Note", exact=True).input_value() == "half a thou"
    assert page.get_by_label("Add a tag").input_value() == "half"
    live.close()
    view.until_text("finished")
    assert page.get_by_label("Note", exact=True).input_value() == "half a thou"


@pytest.mark.further
def test_to_the_trash_and_back(run: RunView) -> None:
    run.open()
    run.page.get_by_role("button", name="Move to trash…").click()
    dialog = run.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Keep it").click()
    dialog.wait_for(state="detached")
    assert (run.folder("log") / "progress.csv").exists()
    run.page.get_by_role("button", name="Move to trash…").click()
    dialog.wait_for()
    run.page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    assert (run.folder("log") / "progress.csv").exists(), "what Enter does is the harmless one"
    run.page.get_by_role("button", name="Move to trash…").click()
    dialog.get_by_role("button", name="Move to trash", exact=True).click()
    run.page.get_by_role("button", name="Undo").wait_for()
    assert not (run.folder("log") / "progress.csv").exists()
    run.page.get_by_role("button", name="Undo").click()
    wait_until((run.folder("log") / "progress.csv").exists, what="the run back")
    run.page.get_by_role("tab", name="Overview").wait_for()


def test_a_double_click_asks_once(run: RunView) -> None:
    run.open()
    run.page.get_by_role("button", name="Move to trash…").evaluate("(one) => { one.click(); one.click(); }")
    dialog = run.page.get_by_role("dialog")
    dialog.first.wait_for()
    answered = (
        "() => performance.getEntriesByType('resource').filter((e) => e.name.endsWith('trash')).length >= 2"
    )
    run.page.wait_for_function(answered)
    run.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert dialog.count() == 1


@pytest.mark.further
def test_a_run_that_is_not_there(run: RunView, faults: Faults) -> None:
    faults.allow("400|404")
    run.page.goto(f"{run.server.url}#/run/0/task/2026/01/01/nothing")
    run.page.locator("#page [role=alert]").wait_for()
    assert "no run" in run.page.locator("#page").inner_text().lower()


@pytest.mark.further
def test_a_log_is_followed(run: RunView) -> None:
    run.open("tab=logs")
    run.until_text("last line")
    run.page.get_by_label("follow").check()
    with (run.folder("log") / "log.txt").open("a") as file:
        file.write("[WARN] 7 : something <b>new</b>\n")
    run.until_text("something <b>new</b>")
    marked = run.page.locator(".log .marked")
    assert "something" in marked.inner_text()
    run.page.get_by_label("File", exact=True).select_option("backup.txt")
    run.until_text("[BACKUP] 0")
    run.page.reload()
    run.until_text("[BACKUP] 0")


def test_of_a_long_log_the_end_is_shown_and_what_came_before_on_demand(run: RunView) -> None:
    lines = [f"line {number:07}" for number in range(1_500_000)]
    lines[400_000] = "line needle"
    (run.folder("log") / "log.txt").write_text("\n".join(lines) + "\n")
    run.open("tab=logs")
    run.until_text("line 1499999")
    text = run.page.locator(".log").inner_text
    assert "line 0000001\n" not in text()
    assert len(text()) < 3_000_000
    first = text()[:300].split("\n")[1]
    run.page.get_by_role("button", name="Earlier").click()
    run.page.wait_for_function(
        "(first) => document.querySelector('.log').textContent.indexOf(first) > 1000", arg=first
    )
    run.page.get_by_label("Search in the whole file").fill("needle")
    run.page.get_by_role("button", name="Search", exact=True).click()
    run.page.locator(".hit").filter(has_text="line needle").click()
    run.until_text("line 0400001")
    assert "line needle" in run.page.locator(".log").inner_text()
    run.page.get_by_role("button", name="End").click()
    run.until_text("line 1499999")


@pytest.mark.further
def test_a_hostile_log_is_text(run: RunView) -> None:
    hostile = "x" * 300_000 + "\r\0\n" + "".join(f"{text}\n" for text in HOSTILE)
    (run.folder("log") / "log.txt").write_text(hostile)
    run.open("tab=logs")
    run.until_text("<script>window.hacked=1</script>")
    assert run.page.locator(".log").evaluate("(log) => log.querySelectorAll('script, img, svg').length") == 0
    assert run.page.evaluate("() => window.hacked") is None


def test_code_and_what_differs_from_another_run(run: RunView) -> None:
    run.server.ask("runs")  # so the server has looked, and does not see the other run half written
    other = write_run(run.root, number=1, params={"lr": 0.1, "seed": 1, "net": {"width": 128}})
    wait_until(lambda: len(run.server.ask("runs")["number"]) == 2, what="the list to have the other run")
    (run.folder("code") / "deep").mkdir()
    (run.folder("code") / "deep" / "net.py").write_text("<script>window.hacked = 1</script>\nwidth = 64\n")
    run.open("tab=code")
    run.page.locator(".leaf[data-name='deep/net.py']").click()
    run.until_text("<script>window.hacked = 1</script>")
    assert run.page.locator("pre.numbers").inner_text().split() == ["1", "2"]
    assert run.page.locator(".lines .py-number").all_inner_texts() == ["1", "64"]
    run.page.locator(".leaf[data-name='train.py']").click()
    run.until_text("seed = 0")
    run.page.get_by_role("button", name="Differences from…").click()
    run.page.get_by_label("Compare with").fill(f"0/{TABLE}/{other}")
    run.page.get_by_role("button", name="Show").click()
    run.page.locator(".diff .minus", has_text="seed = 0").wait_for()
    assert run.page.locator(".diff .plus", has_text="seed = 1").count() == 1
    run.page.get_by_role("row", name="net.width 64 128").wait_for()
    assert run.page.evaluate("() => window.hacked") is None


@pytest.mark.further
def shown_colour(view: RunView, place: int = 0) -> list[int]:
    """Of the middle of a picture on the page."""
    image = view.page.locator("figure img").nth(place)
    image.evaluate("(image) => image.decode()")
    found: list[int] = image.evaluate(
        """(image) => {
            const canvas = document.createElement("canvas");
            const ctx = canvas.getContext("2d");
            ctx.drawImage(image, 0, 0);
            return [...ctx.getImageData(10, 10, 1, 1).data].slice(0, 3);
        }"""
    )
    return found


@pytest.mark.further
def test_pictures_over_time(run: RunView) -> None:
    run.open("tab=media")
    run.page.locator("figure img").first.wait_for()
    run.until_text("step 100")
    assert shown_colour(run) == list(COLOURS[100])
    whole = run.page.get_by_label("Time-step of all files", exact=True)
    whole.focus()
    run.page.keyboard.press("Home")
    run.page.locator("figcaption", has_text="step 5").wait_for()
    assert shown_colour(run) == list(COLOURS[5])
    own = run.page.get_by_label("Time-step of eval.png", exact=True)
    own.focus()
    run.page.keyboard.press("ArrowRight")
    run.page.locator("figcaption", has_text="step 10").wait_for()
    assert shown_colour(run) == list(COLOURS[10])
    run.page.get_by_label("Play: Time-step of all files").click()
    run.page.locator("figcaption", has_text="step 100").wait_for()
    assert shown_colour(run) == list(COLOURS[100])


@pytest.mark.further
def test_small_pictures_keep_their_pixels(run: RunView) -> None:
    (run.folder("results") / "5-large.png").write_bytes(picture(COLOURS[5], (240, 320)))
    run.open("tab=media")
    run.page.wait_for_function("() => document.querySelectorAll('figure img').length > 1")
    run.page.wait_for_function("() => [...document.images].every((one) => one.naturalWidth)")
    crisp = run.page.locator("figure img.crisp")
    crisp.first.wait_for()
    assert "large" not in "".join(str(one.get_attribute("alt")) for one in crisp.all())
    assert crisp.first.evaluate("(image) => getComputedStyle(image).imageRendering") == "pixelated"


@pytest.mark.further
def test_a_picture_that_comes_while_it_runs(page_server: Serve, root: Path, page: Page) -> None:
    live = LiveRun(root)
    results = root / "results" / TABLE / live.index
    results.mkdir(parents=True)
    (results / "5-eval.png").write_bytes(picture(COLOURS[5]))
    view = RunView(root, live.index, page_server(root), page).open("tab=media")
    page.locator("figcaption", has_text="step 5").wait_for()
    (results / "10-eval.png").write_bytes(picture(COLOURS[10]))
    page.locator("figcaption", has_text="step 10").wait_for()
    assert shown_colour(view) == list(COLOURS[10])
    (results / "5-eval.png").unlink()  # as retention does; the number of files stays
    (results / "100-eval.png").write_bytes(picture(COLOURS[100]))
    page.locator("figcaption", has_text="step 100").wait_for()


def test_a_film_plays_and_is_wound(run: RunView) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = run.folder("results") / "5-rollout.mp4"
    writer = imageio_ffmpeg.write_frames(str(path), (64, 64), fps=10, macro_block_size=16)
    writer.send(None)
    for place in range(40):
        writer.send(bytes([place * 6, 0, 0]) * 64 * 64)
    writer.close()
    run.open("tab=media")
    film = run.page.locator("figure video")
    film.wait_for()
    run.page.wait_for_function("() => document.querySelector('video').duration > 3.5")
    film.evaluate(
        "(film) => new Promise((done) => {"
        " film.addEventListener('seeked', done, {once: true}); film.currentTime = 3; })"
    )
    assert film.evaluate("(film) => [film.videoWidth, film.currentTime]") == [64, 3]


@pytest.mark.further
def test_a_drawing_that_a_run_left_is_not_run(run: RunView) -> None:
    (run.folder("results") / "7-drawing.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='30' onload='document.title=1'>"
        "<script>document.title = 'hacked'</script><rect width='40' height='30' fill='#0000ff'/></svg>"
    )
    run.open("tab=media")
    with run.page.expect_popup() as popup:
        run.page.locator("a[title='Open alone']").first.click()
    popup.value.wait_for_load_state()
    assert "hacked" not in popup.value.title()
    popup.value.close()
    assert "hacked" not in run.page.title()


REACH = {  # what a stored page may try; each must fail
    "parent": "parent.document.title = 'hacked'",
    "top": "top.location.href",
    "storage": "localStorage.length",
    "cookie": "document.cookie",
    "api": "await fetch('/api/runs', {method: 'POST', body: '{}'})",
    "itself": "await fetch(document.URL)",
    "other": "await fetch('{other}/fetch')",
    "image": "await new Promise((yes, no) => Object.assign(new Image(), "
    "{onload: yes, onerror: no, src: '{other}/image'}))",
    "script": "await import('{other}/script.js')",
    "socket": "await new Promise((yes, no) => Object.assign(new WebSocket('{other}'.replace('http', 'ws')), "
    "{onopen: yes, onerror: no}))",
    "window": "window.open('{other}/window').location",
}
LEAVE = ("'{other}/leave'", "'/'", "'data:text/html,<p>elsewhere'")  # where it may try to go


def test_a_stored_page_is_shown_and_reaches_nothing(run: RunView, faults: Faults) -> None:
    faults.allow("policy: |Content Security Policy|sandbox|Unsafe attempt|Failed to load resource")
    asked: list[bytes] = []
    with other_host(asked) as other:
        tries = "".join(f"await test('{name}', async () => {{ {code}; }});" for name, code in REACH.items())
        (run.folder("results") / "7-report.html").write_text(
            "<h1>shown</h1><script>(async () => {"
            "const test = async (name, f) => {"
            " let found = 'refused'; try { await f(); found = 'DONE'; } catch {}"
            " document.body.append(` ${name} ${found};`); };"
            f"{tries.replace('{other}', other)}"
            "document.body.append(` ${origin} ${document.URL} ${document.referrer} ready`);"
            "parent.postMessage('ready', '*'); })();</script>"
        )
        for place, where in enumerate(LEAVE):
            (run.folder("results") / f"7-leave{place}.html").write_text(
                f"<p>here</p><script>location = {where.replace('{other}', other)}</script>"
            )
        run.open("tab=media")
        frame = run.page.frame_locator("iframe[title='7-report.html']")
        frame.get_by_text("ready").wait_for()
        said = frame.locator("body").inner_text()
        assert [name for name in REACH if f"{name} refused" not in said] == []
        assert f"null {run.server.base}/static/sandbox.html ready" in said
        run.page.wait_for_function("() => document.querySelectorAll('iframe').length === 4")
        run.page.wait_for_timeout(500)  # for what must not happen
        urls = {one.url for one in run.page.frames[1:]}
        assert urls <= {f"{run.server.base}/static/sandbox.html", "chrome-error://chromewebdata/"}
        assert asked == []
    faults.hosts.discard(other.removeprefix("http://"))
    assert run.page.title() != "hacked"
    assert run.page.url.startswith(run.server.base)
    figure = run.page.locator("figure", has_text="report.html")
    with run.page.expect_download() as waiting:
        figure.get_by_label("Save 7-report.html").click()
    assert Path(waiting.value.path()).read_bytes().startswith(b"<h1>shown</h1>")


@contextmanager
def other_host(asked: list[bytes]) -> Iterator[str]:
    """A server whose requests are kept."""

    class Keep(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path.encode())
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


FIGURE = (
    "<body><script charset='utf-8' src=\"https://cdn.plot.ly/plotly-3.1.0.min.js\" integrity='sha256-x'"
    " crossorigin='anonymous'></script><script>document.body.append(`drawn by ${Plotly}`)</script>"
)


@pytest.fixture
def plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of this name without its script, which servers that are started now find; its folder."""
    package = tmp_path / "packages" / "plotly"
    (package / "package_data").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{REPOSITORY}")
    return package


def test_a_figure_of_plotly(plotly: Path, run: RunView) -> None:
    (plotly / "package_data" / "plotly.min.js").write_text("var Plotly = 'its own script, $&';")
    (run.folder("results") / "7-curve.html").write_text(FIGURE)
    run.open()
    frame = run.page.frame_locator("iframe[title='7-curve.html']")
    frame.get_by_text("drawn by its own script, $&").wait_for()


def test_a_figure_without_plotly(plotly: Path, run: RunView, faults: Faults) -> None:
    faults.allow("404")
    (run.folder("results") / "7-curve.html").write_text(FIGURE)
    run.open()
    run.page.get_by_text("pip install plotly").wait_for()


@pytest.mark.parametrize("kind", ["binary", "ascii"])
def test_a_cloud_of_points(run: RunView, kind: str) -> None:
    points = [(0.0, 0.0, 0.0, 255, 0, 0), (1.0, 2.0, 3.0, 255, 0, 0), (math.nan, 0.0, 0.0, 0, 255, 0)]
    names = ["float x", "float y", "float z", "uchar red", "uchar green", "uchar blue"]
    head = [
        "ply",
        f"format {'ascii' if kind == 'ascii' else 'binary_little_endian'} 1.0",
        f"element vertex {len(points)}",
        *(f"property {name}" for name in names),
        "end_header",
        "",
    ]
    rows = (
        "\n".join(" ".join(map(str, point)) for point in points).encode()
        if kind == "ascii"
        else b"".join(struct.pack("<fffBBB", *point) for point in points)
    )
    (run.folder("results") / "7-cloud.ply").write_bytes("\n".join(head).encode() + rows)
    (run.folder("results") / "7-odd.ply").write_bytes(
        b"ply\nformat ascii 1.0\nelement vertex 1\nend_header\n"
    )
    run.open("tab=media")
    run.page.get_by_text("2 points; x 0 … 1, y 0 … 2, z 0 … 3").wait_for()
    run.page.get_by_text("no cloud of points that this page can draw").wait_for()
    cloud = run.page.get_by_label("7-cloud.ply: 2 points")
    red = """(canvas) => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const found = [];
        for (let at = 0; at < data.length; at += 4) {
            if (data[at] === 255 && data[at + 1] === 0 && data[at + 3] === 255) found.push(at / 4);
        }
        return found.join();
    }"""
    before = wait_until(lambda: cloud.evaluate(red), 20)
    cloud.focus()
    run.page.keyboard.press("ArrowLeft")
    wait_until(lambda: cloud.evaluate(red) not in {"", before}, 20)
    run.page.get_by_label("Wide: cloud.ply").click()
    wait_until(lambda: box_of(cloud)["width"] > 800, 20)


def test_values_and_media_at_the_step_of_a_click(run: RunView) -> None:
    run.open()
    values = run.page.locator("section.part", has=run.page.locator("h2.values"))
    values.get_by_role("row", name="return 4.5").wait_for()
    run.page.wait_for_function("() => document.querySelector('section.panel[data-metric=return]')?.chart")
    box = box_of(run.page.locator("section.panel[data-metric=return] .u-over"))
    run.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + 20)
    run.page.wait_for_url("**at=*")
    step = int(run.page.url.partition("at=")[2].partition("&")[0])
    assert 0 < step < 9
    values.get_by_text(f"Values at step {step}").wait_for()
    values.get_by_role("row", name=f"return {step * 0.5:g}", exact=True).wait_for()
    run.page.locator("figcaption", has_text="step 5").wait_for()
    field = run.page.get_by_label("Step of the values")
    field.fill("6.5")
    field.press("Enter")
    values.get_by_role("row", name="return 3  step 6").wait_for()
    run.page.reload()
    values.get_by_role("row", name="return 3  step 6").wait_for()
    run.page.locator("figcaption", has_text="step 5").wait_for()
    values.get_by_role("button", name="Last").click()
    values.get_by_role("row", name="return 4.5").wait_for()
    run.page.locator("figcaption", has_text="step 100").wait_for()
    assert "at=" not in run.page.url


def test_values_at_a_step_are_asked_for_again_only_after_new_rows(
    page_server: Serve, root: Path, page: Page
) -> None:
    live = LiveRun(root, rows=10)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    view = RunView(root, live.index, page_server(root), page)
    view.open("at=12")
    values = page.locator("section.part", has=page.locator("h2.values"))
    values.get_by_role("row", name="return 4.5  step 9").wait_for()
    for _ in range(2):
        with page.expect_request("**/api/run"):
            pass
    assert asked.count("values") == 1
    for _ in range(3):
        live.append()
    values.get_by_role("row", name="return 6", exact=True).wait_for()


def test_a_step_that_was_chosen_stays_while_more_files_come(
    page_server: Serve, root: Path, page: Page
) -> None:
    live = LiveRun(root)
    results = root / "results" / TABLE / live.index
    results.mkdir(parents=True)
    for step in (5, 10):
        (results / f"{step}-eval.png").write_bytes(picture(COLOURS[step]))
        (results / f"{step}-page.html").write_text(f"<p>page of {step}")
    RunView(root, live.index, page_server(root), page).open("tab=media")
    page.locator("figcaption", has_text="step 10").first.wait_for()
    own = page.get_by_label("Time-step of eval.png", exact=True)
    own.press("Home")
    picture_title = page.locator("figcaption", has_text="eval.png")
    picture_title.get_by_text("step 5").wait_for()
    frame = page.locator("iframe[title='10-page.html']")
    frame.evaluate("(frame) => { frame.kept = true; }")
    (results / "100-eval.png").write_bytes(picture(COLOURS[100]))
    (results / "10-another.html").write_text("<p>before it in the page")
    wait_until(lambda: own.get_attribute("max") == "2", 30)
    assert "step 5" in picture_title.inner_text()
    assert frame.evaluate("(frame) => frame.kept")
    page.frame_locator("iframe[title='10-page.html']").get_by_text("page of 10").wait_for()
    page.get_by_label("Latest: Time-step of eval.png", exact=True).click()
    picture_title.get_by_text("step 100").wait_for()


@pytest.mark.further
def test_checkpoints(run: RunView) -> None:
    run.open("tab=checkpoints")
    run.page.get_by_role("link", name="checkpoint_100.pt").wait_for()
    steps = run.page.locator("#tab-body tbody tr td:first-child").all_inner_texts()
    assert steps == ["100", "10", "5"]
    with run.page.expect_download() as waiting:
        run.page.get_by_role("link", name="checkpoint_10.pt").click()
    assert Path(waiting.value.path()).read_bytes() == b"zip"


def test_system_charts(run: RunView) -> None:
    rows = [f"{1.8e9 + place},{place},{1 << 30},{10 * place}" for place in range(50)]
    header = "timestamp,cpu_percent,rss_bytes,threads"
    (run.folder("log") / "system.csv").write_text("\n".join([header, *rows]) + "\n")
    run.open("tab=system")
    for title in ("CPU (100 % is one core)", "Memory", "Threads"):
        run.page.get_by_role("img", name=title).locator("canvas").wait_for()
    assert run.page.get_by_role("img", name="GPU").count() == 0
    assert "1.0 GiB" not in run.page.locator("#news").inner_text()


@pytest.mark.further
def test_a_failed_run_shows_why(page_server: Serve, root: Path, page: Page) -> None:
    index = write_page_run(root, 0, state="failed")
    folder = root / "log" / TABLE / index
    told = json.loads((folder / "run.json").read_text()) | {
        "reason": "ValueError: <i>bad</i>",
        "exit_code": 3,
    }
    (folder / "run.json").write_text(json.dumps(told))
    (folder / "warn.txt").write_text(
        'Traceback (most recent call last):\n  File "x.py"\nValueError: <i>bad</i>\n'
    )
    view = RunView(root, index, page_server(root), page).open()
    banner = page.locator(".banner[role=alert]")
    assert "ValueError: <i>bad</i>" in banner.inner_text()
    assert "exit code 3" in banner.inner_text()
    assert 'File "x.py"' in banner.inner_text()
    assert banner.locator("i").count() == 0
    view.until_text("failed")


def test_a_live_run_tells_of_its_end(page_server: Serve, root: Path, page: Page) -> None:
    live = LiveRun(root)
    view = RunView(root, live.index, page_server(root), page).open()
    page.locator("h1 .state.running").wait_for()
    live.append(123.0)
    page.get_by_role("row", name="return 123").wait_for()
    live.close("failed")
    page.locator("h1 .state.failed").wait_for()
    view.until_text("failed")


@pytest.mark.further
def test_the_pages_of_hostile_runs(page_server: Serve, root: Path, page: Page) -> None:
    indices = write_hostile(root)
    server = page_server(root)
    told = server.ask("runs")
    tables = dict(zip(told["index"], told["table"], strict=True))
    for index in indices:
        page.goto("about:blank")
        page.goto(run_address(server, index, tables[index]))
        page.get_by_role("tab", name="Overview").wait_for()
        page.get_by_text("Last values").wait_for()
        for name in ("Logs", "Code", "Media", "Checkpoints", "System"):
            page.get_by_role("tab", name=name).click()
            page.wait_for_selector(f".runpage[data-tab='{name.lower()}']")
    assert page.evaluate("() => window.hacked") is None
    assert page.evaluate("() => document.querySelectorAll('#page script, #page iframe').length") == 0


@pytest.mark.further
def test_what_many_losses_say_leaves_room_for_the_curves(page_server: Serve, root: Path, page: Page) -> None:
    index = write_page_run(root, 0)
    path = root / "log" / "task" / index / "run.json"
    losses = [["figure", f"figs/{step}-trajectory.png", "disk full " * 20] for step in range(20)]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lost_others": 20, "losses": losses}))
    RunView(root, index, page_server(root), page).open()
    lost = page.get_by_role("region", name="Lost")
    assert "figs/19-trajectory.png" in lost.inner_text()
    assert lost.evaluate("(node) => node.getBoundingClientRect().height") < 200


@pytest.mark.further
def test_a_long_list_among_the_last_values_is_cut(page_server: Serve, root: Path, page: Page) -> None:
    index = write_page_run(root, 0, {"loss/policy": [0.5], "vec": [f'"{[0.25] * 1000}"']})
    page.goto(run_address(page_server(root), index))
    side = page.locator(".overview aside")
    row = side.get_by_role("row", name="vec [0.25")
    row.wait_for()
    assert box_of(row)["height"] < 300
    name = side.get_by_role("cell", name="loss/policy")
    assert box_of(name)["height"] < 30, "a name is not broken inside a word"


def test_numbers_of_a_table_stand_below_their_heads(run: RunView) -> None:
    (run.root / "results" / TABLE / run.index / "5-scores.csv").write_text("name,score\na,1.5\n")
    run.open("tab=tables&table=5-scores.csv")
    run.page.get_by_role("cell", name="1.5").wait_for()
    aligned = run.page.locator("table.data th").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).textAlign)"
    )
    assert aligned == ["left", "right"]


def test_a_table_over_its_steps(run: RunView) -> None:
    for step in (5, 10, 100):
        text = f"name,score\na,{step}.5\nb,{step + 1}.5\n"
        (run.folder("results") / f"{step}-scores.csv").write_text(text)
    (run.folder("results") / "5-notes.jsonl").write_text('{"x": 1}\n')
    run.open("tab=tables&table=10-scores.csv")
    cells = run.page.locator("table.data tbody tr")
    cells.get_by_text("10.5").wait_for()
    choice = run.page.get_by_label("Table", exact=True)
    assert choice.locator("option").all_inner_texts() == ["notes.jsonl", "scores.csv"]
    run.page.get_by_label("Filter of name").fill("b")
    cells.get_by_text("11.5").wait_for()
    cells.get_by_text("10.5").wait_for(state="detached")
    run.page.get_by_label("Latest: Time-step of the table").click()
    cells.get_by_text("101.5").wait_for()
    assert cells.count() == 1, "the filter stays from step to step"
    assert "table=100-scores.csv" in run.page.url
    choice.select_option("notes.jsonl")
    cells.get_by_text("1", exact=True).wait_for()
    assert run.page.get_by_label("Time-step of the table", exact=True).is_hidden()
    run.open("tab=tables")
    choice.select_option("scores.csv")
    cells.get_by_text("100.5").wait_for()


@pytest.mark.further
def test_files_side_by_side(run: RunView) -> None:
    other = write_run(run.root, number=1)
    results = run.root / "results" / TABLE / other
    (results / "5-figure.png").unlink()
    for step, colour in COLOURS.items():
        (results / f"{step}-eval.png").write_bytes(picture(colour[::-1]))
    runs = "&".join(f"run={quote(f'0/{TABLE}/{index}', safe='')}" for index in (run.index, other))
    run.page.goto(f"{run.server.url}#/compare?{runs}")
    run.page.locator("figure img").nth(1).wait_for()
    assert shown_colour(run, 0) == list(COLOURS[100])
    assert shown_colour(run, 1) == list(COLOURS[100][::-1])
    slider = run.page.get_by_label("Time-step of all files", exact=True)
    slider.focus()
    run.page.keyboard.press("Home")
    run.page.wait_for_function(
        "() => [...document.querySelectorAll('figcaption')]"
        ".every((one) => one.textContent.includes('step 5'))"
    )
    assert shown_colour(run, 0) == list(COLOURS[5])
    assert shown_colour(run, 1) == list(COLOURS[5][::-1])
    run.page.get_by_label(f"Take 0/{TABLE}/{other} away").click()
    run.page.wait_for_function("() => document.querySelectorAll('figure img').length === 1")
    assert quote(other.split("/")[-1][:10]) in run.page.url or "09-30-01" not in run.page.url


@pytest.mark.further
def test_from_the_drawn_runs_to_their_files(run: RunView) -> None:
    write_run(run.root, number=1)
    run.page.goto(run.server.url)
    run.page.locator("#runs-table .row[data-number]").nth(1).wait_for()
    run.page.locator("a.button", has_text="Files").click()
    run.page.locator("table.side th").nth(1).wait_for()
    assert run.page.locator("table.side th").count() == 2


def test_leaving_a_page_stops_what_it_asked_for(run: RunView) -> None:
    """Nothing of a page that was left goes on asking."""
    live = LiveRun(run.root, 7)
    run.page.goto(run_address(run.server, live.index))
    run.page.get_by_role("tab", name="Overview").wait_for()
    run.page.goto(f"{run.server.url}#/runs")
    run.page.locator("#runs-table .row[data-number]").first.wait_for()
    asked: list[str] = []
    run.page.on("request", lambda request: asked.append(request.url))
    live.append(99.0)
    run.page.wait_for_timeout(4000)  # a run's page looks each 3 s; only while we wait here we hear of it
    assert not [url for url in asked if url.endswith("/api/run")]


@pytest.mark.further
def test_a_run_opens_on_its_curves(run: RunView) -> None:
    """Its metrics in panels, its pictures, its use of the machine; parameters and note beside them."""
    lines = ["timestamp,cpu_percent", *(f"{1.79e9 + row},{50 + row}" for row in range(20))]
    (run.folder("log") / "system.csv").write_text("\n".join(lines) + "\n")
    run.open()
    page = run.page
    page.wait_for_function("() => document.querySelector('section.panel[data-metric=return]')?.chart")
    data = page.evaluate(
        "() => [...document.querySelector('section.panel').chart.data].map((one) => [...one])"
    )
    assert data == [list(range(10)), [step * 0.5 for step in range(10)]]
    page.locator("figcaption", has_text="eval.png").wait_for()
    page.get_by_role("img", name="CPU").locator("canvas").wait_for()
    assert page.get_by_label("About the run").get_by_role("row", name="lr 0.1").count() == 1
    page.get_by_label("log y").check()
    page.wait_for_function("() => document.querySelector('section.panel').chart.plot.scales.y.distr === 3")
    assert "logy=1" in page.url
    page.reload()
    page.wait_for_function("() => document.querySelector('section.panel')?.chart?.plot.scales.y.distr === 3")


def test_the_curves_of_a_live_run_grow(page_server: Serve, root: Path, page: Page) -> None:
    live = LiveRun(root)
    RunView(root, live.index, page_server(root), page).open()
    page.wait_for_function("() => document.querySelector('section.panel[data-metric=return]')?.chart")
    live.append(321.0)
    page.wait_for_function("() => document.querySelector('section.panel').chart.data[1].includes(321)")
