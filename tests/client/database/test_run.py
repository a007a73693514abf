from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rla_client.database import open as open_database

MakeRun = Callable[..., str]


def test_a_run_gives_its_parts(root: Path, make_run: MakeRun) -> None:
    make_run(number=1)
    make_run(number=2)
    database = open_database(root)
    run, other = database.find("09-30-01"), database.find("09-30-02")
    assert [path.name for path in run.checkpoints] == [
        "checkpoint_5.pt",
        "checkpoint_10.pt",
        "checkpoint_100.pt",
    ]
    assert [path.name for path in run.figures] == ["5-figure.png"]
    assert list(run.scalars()["return"]) == [step * 0.5 for step in range(10)]
    assert run.archive.hyper_param.seed == 1
    assert run.code_diff(other).splitlines()[-2:] == ["-seed = 1", "+seed = 2"]
    assert run.code_diff(run) == ""
    run.hyper_param["lr"] = 99
    assert database.find("09-30-01").hyper_param.lr == 0.1
