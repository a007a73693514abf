"""Opening frames: what is refused, whatever type and size its fields have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream
from support.spooled import bare_opening

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.spool.opening import Continuation, Earlier, Opening, stream_opening
from rla_client.contract.spool.protocol import frame_at, unpack

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    return {**LoneStream(tmp_path).opening, "rows": 0, "lost": 0}


def test_what_a_client_writes_is_taken(fields: dict[str, Any]) -> None:
    assert Opening.from_fields(fields).continues is None
    continues = {"rows": 3, "time_step": 7.0, "event_file": None, "event_size": 0, "abandoned": "abandoned-2"}
    found = Opening.from_fields({**fields, "continues": continues}).continues
    assert found is not None
    assert (found.rows, found.time_step, found.abandoned) == (3, 7.0, "abandoned-2")


def test_only_outputs_that_are_asked_for_need_a_place(fields: dict[str, Any]) -> None:
    names = {"csv": "progress.json", "log": "run.json"}
    assert Opening.from_fields({**fields, "sinks": ["csv"], "names": names}).names == names
    for sinks, taken in ((["csv", "json"], names), ([], {"backup": "warn.txt"})):
        with pytest.raises(RemoteProtocolError, match="no place"):
            Opening.from_fields({**fields, "sinks": sinks, "names": taken})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("epoch", "pid", "root_inode", "rows", "lost")
            for value in (INF, NAN, -1)
        ),
        *(("opened", value) for value in (INF, -INF, NAN, 1e300, 10**400, "x", None, -1.0)),
        *(("epoch", value) for value in (10**400, 1 << 64, "1e5", [1], None)),
        ("pid", 1 << 31),
        *(("continues", value) for value in ("x", 7, [1], {"rows": "x"}, {"rows": INF}, {"rows": -1})),
        *(("continues", {name: "../x"}) for name in ("event_file", "abandoned")),
        ("continues", {"event_size": -1}),
        ("continues", {"time_step": NAN}),
        ("continues", {"time_step": 10**400}),
        ("sinks", 5),
        ("folders", {"log": "../x"}),
        ("names", {"csv": "a/b"}),
        *(("names", {"csv": name}) for name in ("tb", "run.json", "log.txt", "x" * 300)),
        ("label", "x" * 250),
        ("root", "data"),
    ],
)
def test_what_no_client_writes_is_refused(fields: dict[str, Any], name: str, value: object) -> None:
    with pytest.raises(RemoteProtocolError):
        Opening.from_fields({**fields, name: value})


def test_what_is_written_is_what_is_read() -> None:
    """Each field has another value than its default, so none can be forgotten."""
    after = f"{1:016x}-7-0123abcd"
    continues = Continuation(
        3, 7.5, "events.x", 9, "abandoned-4", (after,), ".rla-tmp-fork-x", Earlier(1.0, 2.0), 5, 6.5
    )
    opening = bare_opening(
        "/data", table="t", index="i", config="/c.yaml", offline=True, master=True, replicate=False,
        run_key="k", launch="l", parent={"run": "p", "chain": True}, continues=continues,
        earlier=Earlier(3.0, 4.0), stall_s=5.0, sample_interval_s=6.0, part="m-1",
            ends_part=True, segment=7, rows=8, lost=9, spool="/s",
    )  # fmt: skip
    defaults = set(Opening._field_defaults)
    assert not {name for name in defaults if getattr(opening, name) == getattr(bare_opening(), name)}
    assert Opening.from_fields(opening.to_fields()) == opening
    assert Opening.from_fields(json.loads(json.dumps(opening.to_fields()))) == opening
    told = unpack(frame_at(opening.frame(2, 30, 4), 0).payload)  # type: ignore[union-attr]
    assert Opening.from_fields(told) == opening._replace(segment=2, rows=30, lost=4)


def test_fields_of_a_later_release_are_passed_over(fields: dict[str, Any]) -> None:
    assert Opening.from_fields({**fields, "later": object()}) == Opening.from_fields(fields)


def test_a_stream_says_what_it_is_of(tmp_path: Path) -> None:
    lone = LoneStream(tmp_path)
    told = stream_opening(lone.writer.folder)
    assert told is not None
    assert (told.run, told.root) == ("r", str(lone.root))
    assert stream_opening(tmp_path / "none") is None
