"""The files of a real run, byte by byte, and as TensorBoard and pandas read them."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client.readers import read_csv, read_events, read_json, read_tb

SCRIPT = """
import math, sys
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure("t", rla_config={"LOG_USED": ["log", "csv", "json", "tensorboard"]},
                      data_root=sys.argv[1], code_root=sys.argv[2])
exp_manager.set_hyper_param(lr=0.1, name="x")
exp_manager.log_files_gen()
out = []
def dump():
    out.append(logger.dump_tabular())
time_step_holder.set_time(10)
logger.record_tabular("b", 1)
logger.record_tabular("A", 0.1)
logger.record_tabular("flag", True)
dump()
time_step_holder.set_time(20)
logger.info("a line", 3)
logger.record_tabular("A", math.nan)
logger.record_tabular("z", math.inf)
logger.record_tabular("late", 1 / 3)
logger.record_tabular("text", 'a "quoted", \\nline')
dump()
logger.dump_tabular()
logger.record_tabular("A", 5, exclude=("csv", "json"))
logger.record_tabular("b", 2, exclude=("tensorboard", "log"))
logger.record_tabular("array", [1.5, 2.5], exclude="log")
dump()
writer = logger.get_tbx_writer()
writer.add_scalar("by/writer", 2.0, 7)
writer.add_text("note", "hello", 7)
import numpy as np
writer.add_histogram("hist", np.arange(10.0), 7)
writer.add_image("image", np.zeros((3, 4, 4), dtype=np.uint8), 7)
writer.add_scalars("group", {"one": 1.0, "two": 2.0}, 7)
logger.warn("careful")
assert logger.flush(60)
import json
print(json.dumps([exp_manager.log_dir, out]))
"""

LONG = """
import sys, time
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure("t", rla_config={"LOG_USED": ["csv", "json", "tensorboard", "log"]},
                      data_root=sys.argv[1], code_root=sys.argv[2])
exp_manager.log_files_gen()
number = 0
while True:
    time_step_holder.set_time(number)
    logger.record_tabular("x", number)
    if number % 100 == 99:
        logger.record_tabular(f"late_{number // 100}", 1.5)
    logger.dump_tabular()
    number += 1
    time.sleep(0.0005)
    if number % 100 == 0:
        print(number, exp_manager.log_dir, flush=True)
"""


@pytest.fixture(name="written")
def written_fixture(agent: Any, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    assert agent.alive
    (tmp_path / "code").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data"), str(tmp_path / "code")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, rows = json.loads(done.stdout.splitlines()[-1])
    return Path(folder), rows


@pytest.mark.slow
def test_the_files_of_a_run(written: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, (first, second, third) = written
    stamps = [repr(row["timestamp"]) for row in (first, second, third)]

    # CSV: first row's keys sorted, later ones appended sorted, repr of floats, proper quoting
    expected = (
        "A,b,flag,time-step,timestamp,late,text,z,array,by/writer,group/one,group/two\n"
        f"0.1,1,True,10,{stamps[0]},,,,,,,\n"
        f'nan,,,20,{stamps[1]},{1 / 3!r},"a ""quoted"", \nline",inf,,,,\n'
        f',2,,20,{stamps[2]},,,,"[1.5, 2.5]",,,\n'
    )
    *rows, of_writer = (folder / "progress.csv").read_bytes().splitlines(keepends=True)
    assert b"".join(rows) == expected.encode()
    assert re.fullmatch(rb",,,7,[0-9.]+,,,,,2.0,1.0,2.0\n", of_writer), "scalars of get_tbx_writer"

    lines = [json.loads(line) for line in (folder / "progress.json").read_text().splitlines()]
    assert lines[0] == {"A": 0.1, "b": 1, "flag": True, "time-step": 10, "timestamp": first["timestamp"]}
    assert lines[1]["text"] == 'a "quoted", \nline'
    assert math.isnan(lines[1]["A"])
    assert lines[2] == {"b": 2, "array": [1.5, 2.5], "time-step": 20, "timestamp": third["timestamp"]}

    log = (folder / "log.txt").read_text()
    tables = log[log.index("-----") :]
    shown = [line for line in tables.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in shown[:4]] == ["A", "b", "flag", "time-step"]
    assert log.index("| b ") < log.index("a line 3") < log.index("| late ") < log.index("careful")
    assert "| array" not in log
    assert (folder / "warn.txt").read_text().endswith("[WARN] 20 : careful\n")
    assert (folder / "backup.txt").read_bytes() == b""


@pytest.mark.slow
def test_tensorboard_reads_every_kind(written: tuple[Path, list[dict[str, Any]]]) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, rows = written
    accumulator = EventAccumulator(str(folder / "tb" / "events"))
    accumulator.Reload()
    tags = accumulator.Tags()
    assert {
        "A",
        "b",
        "flag",
        "late",
        "z",
        "time-step",
        "timestamp",
        "by/writer",
        "group/one",
        "group/two",
    } <= set(tags["scalars"])
    assert {"array", "text"}.isdisjoint(tags["scalars"])
    found = [(event.step, event.value, event.wall_time) for event in accumulator.Scalars("A")]
    single = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert found[0] == (10, single, rows[0]["timestamp"])
    assert math.isnan(found[1][1])
    assert found[2] == (20, 5.0, rows[2]["timestamp"])
    assert [event.step for event in accumulator.Scalars("b")] == [10], "the second one was excluded"
    assert tags["images"] == ["image"]
    assert "hist" in tags["histograms"] or "hist" in tags["tensors"]
    assert any(tag.startswith("hyperparameters") for tag in tags["tensors"])
    assert any(tag.startswith("note") for tag in tags["tensors"])


@pytest.mark.slow
def test_our_readers_and_pandas_agree(written: tuple[Path, list[dict[str, Any]]]) -> None:
    import pandas as pd

    folder, rows = written
    for frame in (read_csv(folder), pd.read_csv(folder / "progress.csv")):
        assert list(frame["time-step"]) == [10, 20, 20, 7]
        assert frame["late"][1] == 1 / 3
        assert list(frame["timestamp"])[:3] == [row["timestamp"] for row in rows]
    assert list(read_json(folder)["time-step"]) == [10, 20, 20, 7]
    scalars = read_tb(folder / "tb")
    assert scalars.loc[20, "A"] == 5.0
    assert scalars.loc[7, "by/writer"] == 2.0


def check_readable(folder: Path) -> int:
    """Every file is readable now, and its rows are 0, 1, 2, … without a gap; how many CSV rows."""
    frame = read_csv(folder)
    steps = [] if frame.empty else list(frame["time-step"])
    assert steps == list(range(len(steps)))
    records = [json.loads(line) for line in (folder / "progress.json").read_bytes().split(b"\n")[:-1]]
    assert [record["time-step"] for record in records] == list(range(len(records)))
    for path in (folder / "tb" / "events").iterdir():
        assert sum(1 for _ in read_events(path)) >= 1
    return len(steps)


@pytest.mark.slow
def test_files_are_readable_while_written_and_after_kills(
    new_agent: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    agent = new_agent().start()
    (tmp_path / "code").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", LONG, str(tmp_path / "data"), str(tmp_path / "code")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        folder = Path(process.stdout.readline().split(" ", 1)[1].strip())
        events = folder / "tb" / "events"
        wait_until(lambda: (folder / "progress.json").exists() and events.is_dir() and os.listdir(events))
        accumulator = EventAccumulator(str(events), size_guidance={"scalars": 0})
        seen = 0
        for turn in range(6):
            wait_until(
                lambda turn=turn: check_readable(folder) > 100 * turn, what=f"more rows in turn {turn}"
            )
            if turn in {1, 3}:
                agent.kill()
                check_readable(folder)
                agent.start()
            wait_until(lambda: "x" in accumulator.Reload().Tags()["scalars"])
            steps = [event.step for event in accumulator.Scalars("x")]
            assert steps == list(range(len(steps))), "an open TensorBoard goes on without a gap or repeat"
            assert len(steps) >= seen
            seen = len(steps)
    finally:
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate()
    told = int(out.splitlines()[-1].split()[0]) if out.strip() else 0

    def ended() -> bool:
        about = folder / "run.json"  # a killed agent may not have come to it yet
        return about.exists() and json.loads(about.read_text())["state"] == "killed"

    wait_until(ended)
    wait_until(lambda: check_readable(folder) >= told)
    accumulator.Reload()
    assert [event.step for event in accumulator.Scalars("x")] == list(range(check_readable(folder)))
    with (folder / "progress.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert {len(line) for line in lines} == {len(header)}
