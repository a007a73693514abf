"""The tables of workers and ranks, cut where their run goes on."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from support.sampled import write_samples

from rla_agent.model.records import Record, Row
from rla_agent.outputs.tensorboard import EventEncoder
from rla_client.contract.errors import BrokenFileError
from rla_client.run.resume.resume_point import ResumePoint
from rla_client.run.resume.worker_tables import (
    cut_events,
    cut_samples,
    cut_table,
    cut_worker_tables,
    is_writer,
    saved_moment,
)

HEAD = "loss,text,time-step,timestamp\n"


def csv_rows(*placed: tuple[float, float]) -> str:
    """Rows of (time-step, moment); their text holds a newline and quotes."""
    return "".join(f'1.5,"a ""b""\nc",{step},{moment}\n' for step, moment in placed)


def test_rows_from_the_first_later_one_on_are_set_aside(tmp_path: Path) -> None:
    table, aside = tmp_path / "progress.rank1.csv", tmp_path / "abandoned-1"
    early, late = csv_rows((1, 10.0), (5, 50.0), (5, 51.0)), csv_rows((6, 52.0), (7, 53.0))
    table.write_text(HEAD + early + late)
    cut_table(table, aside, 5, 50.5)
    assert table.read_text() == HEAD + early
    assert (aside / table.name).read_text() == HEAD + late
    cut_table(table, tmp_path / "abandoned-2", 5, 50.5)
    assert table.read_text() == HEAD + early
    assert not (tmp_path / "abandoned-2").exists(), "nothing was left to cut"


def test_time_steps_that_begin_again_keep_the_earlier_stage(tmp_path: Path) -> None:
    table = tmp_path / "progress.p7.csv"
    stages = csv_rows((1, 1.0), (1000, 2.0), (1, 3.0), (10, 4.0))
    table.write_text(HEAD + stages + csv_rows((11, 5.0), (2, 6.0)))
    cut_table(table, tmp_path / "abandoned-1", 10, 4.5)
    assert table.read_text() == HEAD + stages


@pytest.mark.parametrize("tail", ["", '{"half'])
def test_json_lines(tmp_path: Path, tail: str) -> None:
    table, aside = tmp_path / "progress.rank1.json", tmp_path / "abandoned-1"
    lines = [json.dumps({"x": 1, "time-step": step, "timestamp": 1.0 * step}) + "\n" for step in range(6)]
    table.write_text("".join(lines) + tail)
    cut_table(table, aside, 3, 3.0)
    assert table.read_text() == "".join(lines[:4])
    assert (aside / table.name).read_text() == "".join(lines[4:]) + tail


def test_a_quote_in_a_text_ends_no_cut_of_json_lines(tmp_path: Path) -> None:
    table = tmp_path / "progress.p1.json"
    lines = [
        json.dumps({"t": "x" if step else 'say "hi', "time-step": step, "timestamp": step}) + "\n"
        for step in range(6)
    ]
    table.write_text("".join(lines))
    cut_table(table, tmp_path / "abandoned-1", 2, 2.0)
    assert table.read_text() == "".join(lines[:3])


@pytest.mark.parametrize("kind", ["link", "linked folder", "pipe"])
def test_what_a_link_leads_to_is_not_cut(tmp_path: Path, kind: str) -> None:
    """A run of another machine may hold one: what lies outside of its folder stays as it is."""
    root, outside = tmp_path / "data", tmp_path / "outside"
    folder = root / "log" / "t" / "r"
    (folder / "tb").mkdir(parents=True)
    outside.mkdir()
    table, file = outside / "progress.rank1.csv", outside / "events.out.tfevents.1.h.2.abc"
    table.write_text("x,time-step\n1,1\n2,2\n")
    file.write_bytes(EventEncoder(1.0).head() + events((1, 1.0), (11, 5.0)))
    before = table.read_bytes(), file.read_bytes()
    if kind == "linked folder":
        (folder / "tb" / "rank1").symlink_to(outside)
    elif kind == "link":
        (folder / "tb" / "rank1").mkdir()
        (folder / "tb" / "rank1" / file.name).symlink_to(file)
        (folder / table.name).symlink_to(table)
    else:
        os.mkfifo(folder / table.name)
    point = SimpleNamespace(
        item=SimpleNamespace(folder=lambda _: str(folder)), time_step=1, order=None,
        name="checkpoint", continues=SimpleNamespace(abandoned="abandoned-1"),
    )  # fmt: skip
    cut_worker_tables(cast("ResumePoint", point))
    assert (table.read_bytes(), file.read_bytes()) == before


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("anew", [False, True])
def test_a_rank_that_was_ahead_at_the_save_is_cut_by_its_time_step(
    tmp_path: Path, ending: str, *, anew: bool
) -> None:
    """Its later rows are older than the checkpoint; only an earlier stage's stay for that."""

    def write(name: str, *placed: tuple[float, float]) -> Path:
        path = tmp_path / f"{name}.{ending}"
        lines = [json.dumps({"time-step": step, "timestamp": moment}) + "\n" for step, moment in placed]
        path.write_text(HEAD + csv_rows(*placed) if ending == "csv" else "".join(lines))
        return path

    stage = [(80.0, 1.0)] if anew else []
    write("progress", *stage, (1, 2.0), (49, 10.0), (50, 12.0))
    ahead = write("progress.rank1", *stage, (1, 2.0), (49, 3.0), (50, 4.0), (99, 5.0))
    point = SimpleNamespace(
        item=SimpleNamespace(folder=lambda _: str(tmp_path)), time_step=49, order=11 * 10**9,
        name="checkpoint", continues=SimpleNamespace(abandoned="abandoned-1"),
    )  # fmt: skip
    assert saved_moment(cast("ResumePoint", point)) == (11.0 if anew else None)
    cut_worker_tables(cast("ResumePoint", point))
    assert ("99" in ahead.read_text()) is anew
    assert (tmp_path / "abandoned-1" / ahead.name).exists() is not anew


def test_without_a_moment_the_time_step_counts(tmp_path: Path) -> None:
    table = tmp_path / "progress.rank1.csv"
    table.write_text("x,time-step\n1,1\n2,2\n3,\n4,4\n")
    cut_table(table, tmp_path / "abandoned-1", 2, 99.0)
    assert table.read_text() == "x,time-step\n1,1\n2,2\n3,\n"


def events(*placed: tuple[float, float]) -> bytes:
    """Events of (time-step, moment)."""
    encoder = EventEncoder(1.0)
    rows = (Row(step, moment, {"loss": 0.5}, None) for step, moment in placed)
    return encoder.encode([Record(number, row) for number, row in enumerate(rows)])[0]


def test_events_from_the_first_later_one_on_are_cut(tmp_path: Path) -> None:
    """Also behind a first stage of higher time-steps."""
    file, aside = tmp_path / "events.out.tfevents.1.h.2.abc", tmp_path / "abandoned-1" / "tb" / "rank1"
    kept = EventEncoder(1.0).head() + events((1, 1.0), (1000, 2.0), (1, 3.0), (10, 4.0))
    for tail in (events((11, 5.0), (2, 6.0)), events((11, 5.0)) + b"torn"):
        file.write_bytes(kept + tail)
        for _ in range(2):
            cut_events(file, aside, 10, 4.5)
            assert file.read_bytes() == kept
    assert not aside.exists()


@pytest.mark.parametrize("limit", [10.0, -math.inf])
def test_an_event_file_with_nothing_but_later_events_is_set_aside(tmp_path: Path, limit: float) -> None:
    file, aside = tmp_path / "events.out.tfevents.1.h.2.abc", tmp_path / "abandoned-1" / "tb" / "rank1"
    content = EventEncoder(1.0).head() + events((11, 5.0), (12, 6.0))
    file.write_bytes(content)
    cut_events(file, aside, limit, -math.inf)
    assert not file.exists()
    assert (aside / file.name).read_bytes() == content


def test_samples_from_the_first_later_one_on_are_set_aside(tmp_path: Path) -> None:
    chunks = [(step, [{"a": step}]) for step in (1, 2, 3)]  # recorded at 1000 + step
    path = write_samples(tmp_path, "t", "i", chunks, label="rank1")
    cut_samples(path, path.parent / "abandoned-1", 1.0, 1002.5)
    kept, aside = (
        gzip.decompress(file.read_bytes()).count(b"\n")
        for file in (path, path.parent / "abandoned-1" / path.name)
    )
    assert (kept, aside) == (2, 1)
    before = path.read_bytes()
    cut_samples(path, path.parent / "abandoned-2", 5.0, 0.0)
    assert path.read_bytes() == before
    assert not (path.parent / "abandoned-2").exists()
    path.write_bytes(before[:40] + b"xxxxxxx" + before[47:])
    with pytest.raises(BrokenFileError):
        cut_samples(path, path.parent / "abandoned-2", 0.0, 0.0)


def test_who_is_a_writer(tmp_path: Path) -> None:
    for label in ("rollout-3", "old-1"):
        (tmp_path / f"progress.{label}.csv").touch()
    found = [
        label
        for label in ("rank3", "rank3-node-b-3f9a1c", "p7-2", "rollout-3", "old-1", "import-12ab")
        if is_writer(tmp_path, label)
    ]
    assert found == ["rank3", "rank3-node-b-3f9a1c", "p7-2", "rollout-3"]
