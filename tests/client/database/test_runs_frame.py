from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rla_client.database import open as open_database

MakeRun = Callable[..., str]


def test_one_row_a_run_with_everything(root: Path, make_run: MakeRun) -> None:
    make_run(number=1, params={"lr": 0.1, "net": {"size": 3}, "host": "mine"})
    make_run(number=2, params={"lr": 0.5}, state="failed", table="other/deep")
    frame = open_database(root).runs()
    assert list(frame["table"]) == ["task", "other/deep"]
    assert list(frame["state"]) == ["finished", "failed"]
    assert list(frame["time-step"]) == [9, 9]
    assert frame.loc[0, "net.size"] == 3
    assert frame.loc[0, "hp:host"] == "mine"
    assert frame.loc[0, "host"] == "box"
    assert list(frame["return"]) == [4.5, 4.5]
    assert list(frame["duration"].round(6)) == [60.0, 60.0]
