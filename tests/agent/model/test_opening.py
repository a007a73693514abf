"""Opening frames: what is refused, whatever type and size its fields have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crash.lone import LoneStream

from rla_agent.model.opening import check_opening
from rla_client.contract.errors import RemoteProtocolError

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    return {**LoneStream(tmp_path).opening, "rows": 0, "lost": 0}


def test_what_a_client_writes_is_taken(fields: dict[str, Any]) -> None:
    assert check_opening(fields).continues is None
    continues = {"rows": 3, "time_step": 7.0, "event_file": None, "event_size": 0, "abandoned": "abandoned-2"}
    found = check_opening({**fields, "continues": continues}).continues
    assert found is not None
    assert (found.rows, found.time_step, found.abandoned) == (3, 7.0, "abandoned-2")


def test_only_outputs_that_are_asked_for_need_a_place(fields: dict[str, Any]) -> None:
    names = {"csv": "progress.json", "log": "run.json"}
    assert check_opening({**fields, "sinks": ["csv"], "names": names}).names == names
    for sinks, taken in ((["csv", "json"], names), ([], {"backup": "warn.txt"})):
        with pytest.raises(RemoteProtocolError, match="no place"):
            check_opening({**fields, "sinks": sinks, "names": taken})


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
        check_opening({**fields, name: value})
