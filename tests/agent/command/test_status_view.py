"""What `rla-agent status` says, from plain facts; and that nothing waits while it is gathered."""

from __future__ import annotations

import io
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from support.hung_folder import hung, needs_hung_folder

from rla_agent.command.status_view import render_status
from rla_agent.model.problem import problem
from rla_agent.model.rate_meter import RATE_WINDOW_S, RateMeter
from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunState
from rla_agent.model.status import Facts, absent_status, build_status
from rla_agent.replicate.status_text import size_text
from rla_agent.service.control_client import ask_status
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import SEGMENT_MAX_BYTES, FrameKind, pack
from rla_client.contract.text.duration_text import duration_text
from rla_client.contract.text.terminal_text import broken
from rla_client.run.opening_frame import make_opening
from rla_client.stream.outbox import Outbox

PLACES = Places(Path("/state"), Path("/runtime"))
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "reference" / "status.md"


def record(run: str, **changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "run": run,
        "root": "/data",
        "table": "t",
        "index": f"2026/11/21/{run}",
        "log_folder": f"/data/log/t/{run}",
        "host": "h",
        "user": "u",
        "pid": 1,
        "opened": 1000.0,
        "client": "0",
    }
    return RunRecord(**{**fields, **changes})


def volume(*records: RunRecord, streams: tuple[dict[str, Any], ...] = (), **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "volume-0",
        "commit_s": 0.01,
        "last_turn_s": 0.1,
        "roots": ["/data"],
        "open_files": 3,
        "internal_errors": 0,
        "faults": {},
        "runs": {r.run: r for r in records},
        "streams": list(streams),
    }
    return {**base, **changes}


def stream(name: str, run: str, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "stream": name,
        "run": run,
        "position": (1, 1000),
        "durable": (1, 900),
        "parked": "",
        "rows": 100,
        "damaged_bytes": 0,
        "errors": [],
    }
    return {**base, **changes}


def facts(**changes: Any) -> Facts:
    return Facts(**{"pid": 7, "places": PLACES, "started": 900.0, "now": 1100.0, **changes})


def test_live_and_ended_runs_with_rate_and_lag() -> None:
    live = record("a", rows=100, last_row=1090.0, time_step=5)
    ended = record("b", state=RunState.KILLED, reason="gone").to_plain(1.0)
    status = build_status(
        facts(lags={"s": 500}, rates={"a": 12.5}, ended=(ended, live.to_plain(1.0))),
        [volume(live, streams=(stream("s", "a"),))],
    )
    assert [run["run_id"] for run in status["runs"]] == ["b", "a"], "the live ones last, each once"
    shown = status["runs"][1]
    assert (shown["live"], shown["rows_per_s"], shown["silent_s"]) == (True, 12.5, 10.0)
    assert (shown["lag_bytes"], shown["lag_rows"]) == (500, 50)
    assert status["runs"][0]["live"] is False
    assert status["spool"]["lag_bytes"] == 500
    json.dumps(status)


def test_lag_counts_earlier_segments() -> None:
    far = stream("s", "a", position=(3, 0), rows=2_000_000)
    status = build_status(facts(lags={"s": SEGMENT_MAX_BYTES}), [volume(record("a"), streams=(far,))])
    assert status["runs"][0]["lag_rows"] == 1_000_000


def test_the_rate_is_recent() -> None:
    meter = RateMeter()
    assert meter.rate("a", 0.0, 0) is None
    for second in range(60):
        meter.sample(float(second), {"a": second * 1000 if second < 30 else 30_000})
    assert meter.rate("a", 59.0, 30_000) == 0.0, "nothing for 30 s"
    meter.sample(60.0, {"a": 30_500})
    rate = meter.rate("a", 60.0, 30_500)
    assert rate is not None
    assert abs(rate - 500 / RATE_WINDOW_S) <= 5
    meter.sample(61.0, {})
    assert meter.rate("a", 61.0, 0) is None, "an ended run is forgotten"


def test_problems_say_what_to_do() -> None:
    parked = stream(
        "s",
        "a",
        parked="the data root /x is not here (not mounted)",
        damaged_bytes=12,
        errors=["[Errno 28] No space left"],
    )
    status = build_status(
        facts(unreadable={"t": "frame version 9"}, newer=3, spool_bytes=90, spool_max_bytes=100),
        [volume(streams=(parked,), faults={"x": "[Errno 13] Permission denied: 'log'"}, last_turn_s=9.0)],
    )
    fixes = {found["what"]: found["fix"] for found in status["problems"]}
    assert len(fixes) == 8
    assert all(fixes.values())
    assert "install-service" in next(fix for what, fix in fixes.items() if "not here" in what)
    assert "free space" in next(fix for what, fix in fixes.items() if "No space" in what)
    assert "right to write" in next(fix for what, fix in fixes.items() if "Permission" in what)
    assert any("waits 9 s for its disk, with /data" in what for what in fixes)
    assert problem("strange")["fix"] == "see: rla-agent logs"


def test_absent_has_the_same_shape() -> None:
    there = build_status(facts(), [])
    absent = absent_status(PLACES, "no agent", state="not running", spool_bytes=5)
    assert absent.keys() == there.keys()
    assert absent["agent"].keys() == there["agent"].keys()
    assert absent["agent"]["pid"] is None
    assert absent["spool"]["bytes"] == 5


def test_every_field_is_documented() -> None:
    status = build_status(facts(), [volume(record("a"), streams=(stream("s", "a"),))])
    described = set(re.findall(r"`([a-z_]+)`", DOCUMENT.read_text()))
    fields = {*status, *status["agent"], *status["spool"], *status["messages"], *status["runs"][0]}
    fields |= {*status["volumes"][0], *status["volumes"][0]["streams"][0], "what", "fix"}
    assert not fields - described


def test_the_table_fits_and_is_not_fooled_by_markup() -> None:
    live = record("a", rows=3, index="2026/11/21/x_&note=[red]evil[/red]", reason="[bold]")
    status = build_status(facts(), [volume(live, faults={"x": "[/] broken"})])
    text = io.StringIO()
    Console(file=text, width=100).print(render_status(status))
    assert "[red]" in text.getvalue()
    assert "[/] broken" in text.getvalue()
    assert max(len(line) for line in text.getvalue().splitlines()) <= 100
    text = io.StringIO()
    Console(file=text).print(
        render_status(absent_status(PLACES, "no agent", state="not running", spool_bytes=0))
    )
    assert "not running" in text.getvalue()


def test_80_columns_tell_runs_apart_and_say_why_they_ended() -> None:
    why = (
        "the process ended without closing the run: \nkilled, or left by os._exit, perhaps for want of memory"
    )
    ended = [
        record(
            name,
            state=RunState.KILLED,
            reason=why,
            index=f"2026/11/21/09-30-01-000001_10.0.0.5_&seed={name}&lr=0.001",
        )
        for name in ("1", "2")
    ]
    for live in ([], [record("3", index="2026/11/21/09-30-01-000001_10.0.0.5_&seed=3&lr=0.001")]):
        text = io.StringIO()
        Console(file=text, width=80).print(render_status(build_status(facts(), [volume(*ended, *live)])))
        shown = text.getvalue()
        assert max(len(line) for line in shown.splitlines()) <= 80
        assert all(f"09-30-01 t seed={name}" in shown for name in "12")
        assert " ".join(shown.split()).count(" ".join(why.split())) == 2
        assert ("rows/s" in shown) == ("silent" in shown) == bool(live)
        lines = [line for line in shown.splitlines() if "09-30-01" in line]
        silent = [bool(re.search(r"\d+m\d\ds", line)) for line in lines]
        assert silent == [True] * len(live) + [False, False], "ended: not silent"


def test_problems_break_at_spaces_and_slashes_only() -> None:
    path = "/home/somebody/projects/reinforcement/cartpole/database-of-the-group/log/table/2026"
    live = volume(faults={"x": f"[Errno 13] Permission denied: '{path}'"})
    text = io.StringIO()
    Console(file=text, width=44).print(render_status(build_status(facts(), [live])))
    shown = text.getvalue()
    assert max(len(line) for line in shown.splitlines()) <= 44
    for word in ("reinforcement", "database-of-the-group", "Permission", "write"):
        assert word in shown
    assert "\n  → give this user" in shown
    assert broken("", 10) == [""]
    assert broken("at /aaaa/bbbb/cccc", 7) == ["at", "/aaaa/", "bbbb/", "cccc"]
    assert broken("x" * 25 + " y", 10) == ["x" * 10, "x" * 10, "xxxxx y"]


def test_units_for_people() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]
    assert [duration_text(s) for s in (-1, 59, 59.97, 61, 90_000)] == [
        "0.0s",
        "59.0s",
        "1m00s",
        "1m01s",
        "1d01h",
    ]


@needs_hung_folder
def test_a_spool_that_hangs_holds_up_status_alone(agent: Any, places: Places, tmp_path: Path) -> None:
    """It is walked beside the thread that takes messages; all who asked meanwhile get an answer."""
    root = tmp_path / "data"
    root.mkdir()
    opening = make_opening(root=root, folders={"log": "."}, sinks=("csv",), names={}, item={})
    outbox = Outbox(places, opening, AgentConfig(autostart=False))
    outbox.put(FrameKind.ROW, pack([1, 1.0, {"x": 1}]), time.time(), 1)
    assert outbox.flush(60)
    blobs = outbox.blobs_folder
    assert blobs is not None
    with hung(blobs) as folder, ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask_status, places, 120.0) for _ in range(4)]
        outbox.put(FrameKind.ROW, pack([2, 2.0, {"x": 2}]), time.time(), 1)
        assert outbox.flush(60)
        assert not any(asked.done() for asked in asking)
        folder.come_back()
        assert {asked.result()["agent"]["pid"] for asked in asking} == {agent.pid}
    outbox.close("finished", "")


def test_no_line_of_the_head_breaks_inside_a_word() -> None:
    place = "/var/lib/research-group/reinforcement-learning/machines/the-one-with-two-cards/state"
    status = build_status(facts(places=Places(Path(place), Path("/runtime"))), [])
    text = io.StringIO()
    Console(file=text, width=60).print(render_status(status))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    for word in ("research-group", "reinforcement-learning", "the-one-with-two-cards"):
        assert any(word in line for line in lines)
    assert all(line[:7].strip() in {"agent", "state", "spool", "", "no runs"} for line in lines)
