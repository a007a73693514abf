"""`rla web` in a browser: time to the first curve, bands, ten thousand runs, live rows; beside other pages.

    python tests/bench/bench_web.py [--part paint bands table live training peers] [--scale 0.1]

Everything is made in a temp folder and looked at in a headless Chromium. A curve counts as seen when a canvas
of the page holds coloured pixels, for each page alike; times run from the navigation's start. `cold`: the
server has just started and its caches are empty; `warm`: the same page in a fresh profile after that.
TensorBoard and trackio come by pip into a venv of their own; their servers have loaded everything before they
are asked, which their `ready` tells. Prints times and ratios, fails on nothing but wrong output.
"""

from __future__ import annotations

# ruff: noqa: E402 - the paths come first
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import numpy as np
import psutil
from stage import Stage
from support.page_lab import PageServer, chromium, find_chromium
from support.page_runs import LiveRun, write_many_runs
from support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BODIES = 8  # tables that differ; runs have them in turn
PATIENCE_MS = 300_000
SETTLED_S = 2.1  # younger files are never cached
WATCHED_S = 20.0
PEERS = ("trackio", "tensorboard", "tensorboardX")
COLOURED = """() => {
    window.benchCanvas ??= Object.assign(document.createElement("canvas"), {width: 120, height: 80});
    const small = window.benchCanvas;
    const ctx = small.getContext("2d", {willReadFrequently: true});
    for (const canvas of document.querySelectorAll("canvas")) {
        if (!canvas.width || !canvas.height || !canvas.getClientRects().length) continue;
        ctx.clearRect(0, 0, 120, 80);
        ctx.drawImage(canvas, 0, 0, 120, 80);
        const {data} = ctx.getImageData(0, 0, 120, 80);
        let seen = 0;
        for (let at = 0; at < data.length; at += 4) {
            const low = Math.min(data[at], data[at + 1], data[at + 2]);
            if (data[at + 3] > 60 && Math.max(data[at], data[at + 1], data[at + 2]) - low > 50) seen += 1;
        }
        if (seen > 40) return performance.now();
    }
    return 0;
}"""
SELECT_ALL = """() => {
    const box = document.querySelector(
        "tb-data-table input[type=checkbox], runs-data-table input[type=checkbox]");
    if (box && !box.checked && !box.indeterminate) box.click();
}"""


def bodies(rows: int, metrics: int) -> list[str]:
    """Texts of progress.csv: random walks, which differ from each other."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(BODIES):
        values = random.standard_normal((rows, metrics)).cumsum(axis=0)
        names = ["return", *(f"m{place}" for place in range(1, metrics))]
        lines = [
            f"{','.join(map('{:.7g}'.format, row))},{step},{1.7e9 + step}"
            for step, row in enumerate(values.tolist())
        ]
        found.append(",".join([*names, "time-step", "timestamp"]) + "\n" + "\n".join(lines) + "\n")
    return found


def make_runs(root: Path, count: int, texts: Sequence[str]) -> None:
    """Runs of a sweep, 10 seeds to a learning rate."""
    rows = texts[0].count("\n") - 1
    begin = datetime(2026, 1, 1)  # noqa: DTZ001 - an index is local time
    for number in range(count):
        opened = begin + timedelta(minutes=7 * number)
        seed, lr = number % 10, round(0.001 * (1 + number // 10), 3)
        index = f"{opened:%Y/%m/%d/%H-%M-%S-%f}_10.0.0.5_&lr={lr}&seed={seed}"
        folder = root / "log" / "bench" / index
        folder.mkdir(parents=True)
        (folder / "progress.csv").write_text(texts[number % BODIES])
        run = {"format": 1, "state": "finished", "opened": opened.timestamp(), "time_step": rows - 1}
        (folder / "run.json").write_text(json.dumps(run | {"updated": opened.timestamp(), "host": "bench"}))
        hyper = root / "hyperparameter" / "bench" / index
        hyper.mkdir(parents=True)
        (hyper / "parameter.json").write_text(json.dumps({"lr": lr, "seed": seed, "env": "Hopper-v4"}))


def line(what: str, seconds: float | None, note: str = "") -> None:
    shown = "   not seen" if seconds is None else f"{seconds:9.2f} s"
    print(f"{what:<72} {shown}  {note}", flush=True)


@contextmanager
def served(roots: Sequence[Path], folder: Path) -> Iterator[PageServer]:
    os.environ["RLA_STATE_DIR"] = str(folder / "state")
    server = PageServer(roots, folder)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def fresh(browser: Browser) -> Iterator[Page]:
    """A page of a new profile."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def seen(page: Page, expression: str, polling: Any = "raf") -> float | None:
    """Seconds from the navigation's start until a JavaScript expression gives a time."""
    from playwright.sync_api import TimeoutError as TooLong

    try:
        return float(page.wait_for_function(expression, polling=polling).json_value()) / 1000
    except TooLong:
        return None


def when(condition: str) -> str:
    return f"() => ({condition}) && performance.now()"


PANELS_DRAWN = (
    "[...document.querySelectorAll('section.panel')].filter((p) => p.panel.seen).every((p) => p.chart)"
)
PANEL_OF_RETURN = "document.querySelector('section.panel[data-metric=return]')?.chart"
SOME_PANEL = "document.querySelector('section.panel')"


def look(browser: Browser, server: PageServer, query: str, name: str) -> float | None:
    """Open the page of runs and say when what was seen."""
    time.sleep(SETTLED_S)  # the page before may have left requests, and the browser ends its process
    with fresh(browser) as page:
        page.goto(f"{server.url}#/runs?{query}", wait_until="commit")
        rows = seen(
            page, when("document.querySelector('#runs-table .row[data-number], #runs-table .row.group')")
        )
        first = seen(page, COLOURED, 50)
        whole = seen(page, when(f"{SOME_PANEL} && {PANELS_DRAWN}"))
        paint = page.evaluate("() => performance.getEntriesByType('paint')[0]?.startTime ?? NaN")
        line(f"{name}: first paint, as the browser tells it", paint / 1000)
        line(f"{name}: rows of the list", rows)
        line(f"{name}: first curve", first)
        line(f"{name}: all panels in sight", whole)
        return first


def usage(server: PageServer) -> tuple[float, float]:
    """CPU seconds and RSS in MB."""
    process = psutil.Process(server.pid)
    times = process.cpu_times()
    return times.user + times.system, process.memory_info().rss / 1e6


def bench_paint(browser: Browser, base: Path, scale: float) -> None:
    count, rows, metrics = int(200 * scale), int(10_000 * scale), 10
    print(f"\n{count} runs x {rows:,} points x {metrics} metrics, all drawn", flush=True)
    texts = bodies(rows, metrics)
    make_runs(base / "data", count, texts)
    time.sleep(SETTLED_S)
    with served([base / "data"], base / "web") as server:
        look(browser, server, f"show={count}", "cold")
        look(browser, server, f"show={count}", "warm")
        look(browser, server, "", "warm, the 20 runs that are drawn unasked")
        check(browser, server, base / "data", count)
        cpu, memory = usage(server)
        print(f"  the server: {cpu:.1f} s of CPU so far, RSS {memory:.0f} MB", flush=True)


def check(browser: Browser, server: PageServer, root: Path, count: int) -> None:
    """Wrong output: a run's values are not those of its file, or a panel lacks the largest of all runs."""
    told = server.ask("runs")
    texts = [(root / "log" / "bench" / index / "progress.csv").read_text() for index in told["index"]]
    values = [[float(row.partition(",")[0]) for row in text.splitlines()[1:]] for text in texts]
    answer = server.post("csv", {"runs": told["number"][:1], "metric": "return"})
    rows = answer.text.splitlines()[1:]
    assert [float(row.rpartition(",")[2]) for row in rows] == values[0]
    with fresh(browser) as page:
        page.goto(f"{server.url}#/runs?show={count}", wait_until="commit")
        panel = "document.querySelector('section.panel[data-metric=return]')"
        page.wait_for_function(f"() => {panel}?.chart")
        shown = page.evaluate(f"() => {panel}.chart.data.slice(1).map((ys) => Math.max(...ys.map(Number)))")
    assert np.isclose(max(shown), max(map(max, values)), rtol=1e-6, atol=0), max(shown)


def bench_bands(browser: Browser, base: Path, scale: float) -> None:
    count, rows = int(1000 * scale), int(10_000 * scale)
    print(f"\n{count} runs x {rows:,} points in bands, 10 seeds each", flush=True)
    make_runs(base / "data", count, bodies(rows, 1))
    time.sleep(SETTLED_S)
    with served([base / "data"], base / "web") as server:
        look(browser, server, "group=lr", "bands, cold")
        look(browser, server, "group=lr", "bands, warm")
        look(browser, server, "group=env", "one band of all, warm")


def bench_table(browser: Browser, base: Path, scale: float) -> None:
    count = int(10_000 * scale)
    print(f"\n{count:,} runs in the list", flush=True)
    write_many_runs(base / "data", count)
    with served([base / "data"], base / "web") as server:
        look(browser, server, "", "cold")
        look(browser, server, "", "warm")
        with fresh(browser) as page:
            page.goto(f"{server.url}#/runs", wait_until="commit")
            page.wait_for_selector("#runs-table .row[data-number]")
            page.wait_for_function("() => window.rla.names.hyper.length > 0")
            timed(
                page,
                "typing a filter until its rows are shown",
                lambda: page.fill("input[name=where]", "seed == 3"),
                "window.rla.rows().length < window.rla.store.rows.size",
            )
            timed(
                page,
                "sorting by a column",
                lambda: page.click(".row.head [data-column=lr]"),
                "document.querySelector('.row.head [data-column=lr]').ariaSort !== 'none'",
            )

            def group() -> None:
                page.fill("input[name=group]", "lr")
                page.keyboard.press("Enter")

            timed(
                page,
                "grouping by a parameter",
                group,
                "document.querySelector('#runs-table .row.group')",
            )
            timed(
                page,
                "scrolling to the last row",
                lambda: page.evaluate(
                    "async () => { await window.rla.set({group: '', where: ''}); "
                    "const box = document.getElementById('runs-table'); box.scrollTop = box.scrollHeight; }"
                ),
                "document.querySelector(`#runs-table [aria-rowindex='${window.rla.rows().length + 1}']`)",
            )
        print(f"  the server's RSS: {usage(server)[1]:.0f} MB", flush=True)


def timed(page: Page, what: str, act: Callable[[], Any], condition: str) -> None:
    begun = time.perf_counter()
    act()
    page.wait_for_function(f"() => {condition}", polling="raf")
    line(what, time.perf_counter() - begun)


def bench_live(browser: Browser, base: Path, scale: float) -> None:
    count = max(int(20 * scale), 2)
    runs = [LiveRun(base / "data", number, rows=2000) for number in range(count)]
    print(f"\n{count} live runs", flush=True)
    with served([base / "data"], base / "web") as server, fresh(browser) as page:
        page.goto(f"{server.url}#/runs", wait_until="commit")
        panel = PANEL_OF_RETURN
        page.wait_for_function(f"() => {panel}?.data.length > {count}", polling="raf")
        delays = []
        for value in range(10):
            shown = runs[-1].append(1e6 + value)
            begun = time.perf_counter()
            page.wait_for_function(
                f"() => {panel}?.data.slice(1).some((ys) => ys.includes({shown}))", polling="raf"
            )
            delays.append(time.perf_counter() - begun)
        line(
            "a row is in the file until it is in the panel, median of 10",
            float(np.median(delays)),
            f"worst {max(delays):.2f} s",
        )
        for every_s in (10.0, 1.0, 0.1):
            stop = threading.Event()
            writer = threading.Thread(target=append_all, args=(runs, every_s, stop), daemon=True)
            writer.start()
            time.sleep(1)
            before, begun = usage(server)[0], time.perf_counter()
            time.sleep(WATCHED_S)
            share = (usage(server)[0] - before) / (time.perf_counter() - begun)
            stop.set()
            writer.join()
            print(
                f"  each run a row in {every_s:g} s: the server takes {share:6.1%} of a core,"
                f" RSS {usage(server)[1]:.0f} MB",
                flush=True,
            )
        last = runs[0].append(5e6)
        page.wait_for_function(f"() => {panel}?.data.slice(1).some((ys) => ys.includes({last}))")


def append_all(runs: Sequence[LiveRun], every_s: float, stop: threading.Event) -> None:
    while not stop.wait(every_s):
        for run in runs:
            run.append()


# What training pays --------------------------------------------------------------------------------

TRAINING = """
import sys, time
import numpy as np
import rla_client
rla_client.init("watched")
end, times, step, clock = time.monotonic() + float(sys.argv[1]), [], 0, time.perf_counter_ns
while time.monotonic() < end:
    begun = clock()
    for number in range(20_000):  # the training: a millisecond of one core
        step += number & 1
    worked = clock()
    rla_client.log({"return": step / 7, "loss": 1 / step, "kl": 0.5}, step=len(times))
    times.append((time.monotonic(), worked - begun, clock() - worked))
np.save(sys.argv[2], np.array(times))
"""


def bench_training(browser: Browser, base: Path, scale: float) -> None:
    """A training with the page open on its live curves, and closed, in turns.

    The training has a core of its own, as on a machine that has one to spare; agent, server and browser
    share another.
    """
    turns, turn_s, load_s = 16, max(3.0 * scale, 2.0), 3.0
    cores = sorted(os.sched_getaffinity(0))
    print("\na training that logs each millisecond, its page open and closed in turns", flush=True)
    with Stage("LOG_USED: [csv, tensorboard]\nAGENT: {autostart: false}\n") as stage:
        os.environ.update({name: stage.environment[name] for name in ("RLA_STATE_DIR", "RLA_RUNTIME_DIR")})
        agent = stage.agent()
        command = [
            sys.executable,
            "-c",
            TRAINING,
            str(turns * (2 * turn_s + load_s) + 6),
            str(base / "times.npy"),
        ]
        environment = stage.environment | {"RLA_DATA_ROOT": str(stage.data)}
        base.mkdir(parents=True, exist_ok=True)
        (base / "rla_config.yaml").write_bytes(stage.config.read_bytes())
        training = subprocess.Popen(command, cwd=base, env=environment)
        os.sched_setaffinity(training.pid, cores[:1])
        time.sleep(2)
        open_s: list[tuple[float, float]] = []
        with served([stage.data], base / "web") as server:
            os.environ["RLA_STATE_DIR"] = str(base / "web" / "state")
            for pid in (
                agent,
                server.pid,
                *(child.pid for child in psutil.Process().children(recursive=True)),
            ):
                if pid != training.pid and cores[1:]:
                    os.sched_setaffinity(pid, cores[1:])
            for _ in range(turns):
                with fresh(browser) as page:
                    page.goto(f"{server.url}#/runs", wait_until="commit")
                    page.wait_for_function(f"() => {PANEL_OF_RETURN}?.data[0].length > 1", polling="raf")
                    begun = time.monotonic()
                    time.sleep(turn_s)
                    open_s.append((begun, time.monotonic()))
                time.sleep(turn_s)
        assert training.wait(120) == 0
    times = np.load(base / "times.npy")
    inside = np.zeros(len(times), bool)
    for begun, ended in open_s:
        inside |= (times[:, 0] >= begun) & (times[:, 0] <= ended)
    begun, ended = open_s[0][0], open_s[-1][1] + turn_s
    among = (times[:, 0] >= begun) & (times[:, 0] <= ended)
    for name, which in (("closed", among & ~inside), ("open", inside)):
        work, logging = times[which, 1] / 1e3, times[which, 2] / 1e3
        print(
            f"  page {name:<6}: {which.sum():,} steps, work p50 {np.median(work):.0f} us, logging p50 "
            f"{np.median(logging):.1f} us, p99 {np.percentile(logging, 99):.1f} us",
            flush=True,
        )

    # each turn beside those around it: a virtual core's own speed changes by more than the page costs
    def step_ns(begun: float, ended: float) -> float:
        return float(np.median(times[(times[:, 0] >= begun) & (times[:, 0] <= ended), 1:].sum(axis=1)))

    opened = [step_ns(*turn) for turn in open_s]
    closed = [step_ns(ended, ended + turn_s) for _, ended in open_s]
    around = [(before + after) / 2 for before, after in pairwise(closed)]
    ratios = [step / beside for step, beside in zip(opened[1:], around, strict=True)]
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    print(
        f"  a step with the page open takes {middle:.3f} x as long as with it closed just before and after "
        f"(median of {len(ratios)} turns; half of them {low:.3f} to {high:.3f})",
        flush=True,
    )


# The other pages -----------------------------------------------------------------------------------

TO_TRACKIO = """
import csv, sys
from pathlib import Path
from trackio.sqlite_storage import SQLiteStorage
tables = {}
for number, path in enumerate(sorted(Path(sys.argv[1]).rglob("progress.csv"))):
    text = path.read_text()
    if text not in tables:
        table = csv.DictReader(text.splitlines())
        rows = [{k: float(v) for k, v in row.items() if k != "timestamp"} for row in table]
        tables[text] = [int(row.pop("time-step")) for row in rows], rows
    steps, rows = tables[text]
    SQLiteStorage.bulk_log("bench", f"run{number}", rows, steps=steps, config={"seed": number % 10})
"""
TO_TENSORBOARD = """
import csv, os, shutil, sys
from pathlib import Path
from tensorboardX import SummaryWriter
tables = {}
for number, path in enumerate(sorted(Path(sys.argv[1]).rglob("progress.csv"))):
    text, folder = path.read_text(), Path(sys.argv[2]) / f"run{number}"
    if text not in tables:
        tables[text] = folder
        writer = SummaryWriter(str(folder))
        for row in csv.DictReader(text.splitlines()):
            step, stamp = int(row.pop("time-step")), float(row.pop("timestamp"))
            for name, value in row.items():
                writer.add_scalar(name, float(value), step, walltime=stamp)
        writer.close()
    else:
        folder.mkdir()
        for one in tables[text].iterdir():
            os.link(one, folder / one.name)
"""
SHOW_TRACKIO = """
import sys, trackio
trackio.show("bench", open_browser=False, server_port=int(sys.argv[1]), block_thread=True)
"""


def make_peers(given: Path | None, base: Path) -> Path | None:
    """The venv of the other pages; None where it cannot be made."""
    if given is not None:
        return given
    venv = base / "peers"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    done = subprocess.run(
        [str(venv / "bin" / "pip"), "install", "-q", "setuptools", *PEERS],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"no other pages: pip: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return venv


def bench_peers(browser: Browser, base: Path, scale: float, given: Path | None) -> None:
    base.mkdir(parents=True)
    venv = make_peers(given, base)
    for count, rows in ((50, 2000), (200, 10_000)):
        count, rows, metrics = max(int(count * scale), 2), max(int(rows * scale), 100), 4  # noqa: PLW2901
        folder = base / f"{count}x{rows}"
        print(f"\nbeside other pages: {count} runs x {rows:,} points x {metrics} metrics", flush=True)
        texts = bodies(rows, metrics)
        make_runs(folder / "data", count, texts)
        time.sleep(SETTLED_S)
        with served([folder / "data"], folder / "web") as server:
            cold = look(browser, server, f"show={count}", "rla web, cold")
            warm = look(browser, server, f"show={count}", "rla web, warm")
        if venv is None:
            continue
        for name, bench in (("trackio", with_trackio), ("TensorBoard", with_tensorboard)):
            times = bench(browser, venv, folder, count, rows)
            for kind, own, theirs in zip(("cold", "warm"), (cold, warm), times, strict=True):
                line(
                    f"{name}, {kind}: first curve",
                    theirs,
                    "" if own is None or theirs is None else f"{theirs / own:5.1f} x rla web's {own:.2f} s",
                )


def converted(venv: Path, program: str, folder: Path, name: str) -> float:
    (folder / name).mkdir()
    begun = time.perf_counter()
    environment = {**os.environ, "TRACKIO_DIR": str(folder / name)}
    command = [str(venv / "bin" / "python"), "-c", program, str(folder / "data"), str(folder / name)]
    subprocess.run(command, check=True, env=environment)
    return time.perf_counter() - begun


def with_trackio(browser: Browser, venv: Path, folder: Path, count: int, rows: int) -> list[float | None]:
    took = converted(venv, TO_TRACKIO, folder, "trackio")
    port = free_port()
    command = [str(venv / "bin" / "python"), "-c", SHOW_TRACKIO, str(port)]
    with peer(command, folder, f"http://127.0.0.1:{port}/", lambda _: True) as ready:
        print(f"  trackio: data in after {took:.0f} s, server ready after {ready:.1f} s", flush=True)
        return [first_curve(browser, f"http://127.0.0.1:{port}/?project=bench") for _ in range(2)]


def with_tensorboard(browser: Browser, venv: Path, folder: Path, count: int, rows: int) -> list[float | None]:
    took = converted(venv, TO_TENSORBOARD, folder, "tensorboard")
    port = free_port()
    address = f"http://127.0.0.1:{port}"

    def loaded(_: bytes) -> bool:
        if len(json.loads(fetched(f"{address}/data/runs"))) < count:
            return False
        for number in (0, count // 2, count - 1):
            points = json.loads(fetched(f"{address}/data/plugin/scalars/scalars?tag=m1&run=run{number}"))
            if not points or points[-1][1] != rows - 1:
                return False
        return True

    command = [
        str(venv / "bin" / "tensorboard"),
        "--logdir",
        str(folder / "tensorboard"),
        "--port",
        str(port),
    ]
    with peer(command, folder, f"{address}/", loaded) as ready:
        print(
            f"  TensorBoard: data in after {took:.0f} s, loaded after {ready:.1f} s"
            " (it keeps 1,000 points a curve)",
            flush=True,
        )
        return [first_curve(browser, f"{address}/?darkMode=false#timeseries", SELECT_ALL) for _ in range(2)]


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        found: bytes = answer.read()
        return found


@contextmanager
def peer(command: list[str], folder: Path, address: str, ready: Callable[[bytes], bool]) -> Iterator[float]:
    """A server; gives the seconds until it was ready."""
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio")}
    begun = time.perf_counter()
    with (folder / "peer.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        while True:
            with suppress(urllib.error.URLError, OSError, ValueError):
                if ready(fetched(address)):
                    break
            if process.poll() is not None or time.perf_counter() - begun > PATIENCE_MS / 1000:
                raise RuntimeError(f"{command}: {(folder / 'peer.log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield time.perf_counter() - begun
    finally:
        for one in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            with suppress(psutil.Error):
                one.kill()
        process.kill()
        process.wait()


def first_curve(browser: Browser, address: str, each: str = "() => 0") -> float | None:
    with fresh(browser) as page:
        page.goto(address, wait_until="commit")
        return seen(page, f"() => {{ ({each})(); return ({COLOURED})(); }}", 50)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", nargs="*", default=["paint", "bands", "table", "live", "training", "peers"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the amount of data")
    parser.add_argument("--peers", type=Path, default=None, help="a venv with trackio and tensorboard")
    chosen = parser.parse_args()
    if find_chromium() is None:
        print("no Chromium here")
        return
    parts: dict[str, Callable[[Browser, Path, float], None]] = {
        "paint": bench_paint,
        "bands": bench_bands,
        "table": bench_table,
        "live": bench_live,
        "training": bench_training,
        "peers": lambda browser, base, scale: bench_peers(browser, base, scale, chosen.peers),
    }
    for name in chosen.part:
        with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder, chromium() as browser:
            parts[name](browser, Path(folder) / name, chosen.scale)


if __name__ == "__main__":
    main()
