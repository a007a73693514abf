from __future__ import annotations

import csv
import errno
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.protocol import MAX_KEYS_PER_ROW
from rla_client.database import open as open_database
from rla_client.database.changes.change_lock import changing
from rla_client.database.imports import tables, tensorboard
from rla_client.database.imports.import_logs import import_logs
from rla_client.database.run import Run


def run_import(root: Path, kind: str, folder: Path) -> tuple[list[str], list[str], list[str]]:
    with changing(root, 1000.0):
        done = import_logs(root, kind, folder, "new", 1000.0)
    return done.made, done.there, done.problems


def write_events(folder: Path, values: dict[str, list[float]]) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for tag, series in values.items():
            for step, value in enumerate(series):
                writer.add_scalar(tag, value, step * 10)
        writer.add_text("hyperparameters", "lr 0.1")


def test_tensorboard_every_value(root: Path, tmp_path: Path) -> None:
    values = {"loss": [0.5 * step for step in range(50)], "a/b": [float("nan"), 2.0, -3.25]}
    write_events(tmp_path / "runs" / "one", values)
    write_events(tmp_path / "runs" / "deep" / "two", {"x": [1.0]})
    made, there, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), there, problems) == (2, [], [])
    run = next(run for run in open_database(root) if "one" in run.index)
    frame = run.scalars().set_index("time-step")
    assert frame["loss"].tolist() == values["loss"]
    assert [repr(value) for value in frame["a/b"].tolist()[:3]] == ["nan", "2.0", "-3.25"]
    assert list(frame.index) == [step * 10 for step in range(50)]
    assert len(list((root / "log" / "new" / run.index / "tb" / "events").iterdir())) == 1
    assert run_import(root, "tensorboard", tmp_path / "runs") == ([], made, [])


def test_runs_of_this_database_are_not_imported_into_it_again(root: Path, tmp_path: Path) -> None:
    write_events(tmp_path / "runs" / "one", {"loss": [1.0, 2.0]})
    own, _, _ = run_import(root, "tensorboard", tmp_path / "runs")
    write_events(tmp_path / "runs" / "two", {"loss": [3.0]})
    made, there, (told,) = run_import(root, "tensorboard", tmp_path)
    assert (len(made), there) == (2, [])  # by their paths from here, and nothing that an import makes
    assert told == f"the runs in {root}, which are in this database already"
    assert run_import(root, "tensorboard", root) == ([], [], [told])
    assert len(run_import(root, "tensorboard", root / "log" / own[0])[0]) == 1


def test_what_is_too_large_is_named_and_the_rest_imported(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_CSV_BYTES", 1 << 20)
    monkeypatch.setattr(tensorboard, "MAX_POINTS", 5)
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "large.csv").write_text("a\n" + "1\n" * (1 << 19))
    (tmp_path / "csv" / "small.csv").write_text("a\n1\n")
    made, _, problems = run_import(root, "csv", tmp_path / "csv")
    assert (len(made), len(problems), "larger than 1 MiB" in problems[0]) == (1, 1, True)
    write_events(tmp_path / "tb" / "many", {"loss": [1.0] * 6})
    write_events(tmp_path / "tb" / "few", {"loss": [1.0] * 4})  # and a text
    made, _, problems = run_import(root, "tensorboard", tmp_path / "tb")
    assert (len(made), len(problems), "more than 5 points" in problems[0]) == (1, 1, True)


def test_tensorboard_of_torch(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "t")) as writer:
        for step in range(5):
            writer.add_scalar("new style", step * 0.25, step, new_style=True)
            writer.add_scalar("double", step / 3, step, double_precision=True, new_style=True)
    run_import(root, "tensorboard", tmp_path / "t")
    frame = open_database(root).find("@last").scalars()
    assert frame["new style"].tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert frame["double"].tolist() == [step / 3 for step in range(5)]


def test_cleanrls_table_of_parameters(root: Path, tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    table = {"seed": 1, "lr": 0.00025, "env_id": "CartPole-v1", "gamma": None, "sizes": (64, 64)}
    lines = [f"|{name}|{value}|" for name, value in table.items()]
    with SummaryWriter(str(tmp_path / "runs" / "one")) as writer:
        writer.add_text("hyperparameters", "|param|value|\n|-|-|\n" + "\n".join(lines))
        writer.add_text("notes", "the second try")
        writer.add_scalar("return", 1.0, 1)
    assert run_import(root, "tensorboard", tmp_path / "runs")[2] == []
    found = open_database(root).find("@last").hyper_param
    assert found == {**table, "sizes": [64, 64], "notes/text_summary": "the second try"}


def test_values_of_a_table_that_no_file_holds_are_kept_as_text(root: Path, tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    values = ("0x" + "f" * 5000, "{(1, 2): 3, 'a': {4}}", "[" * 500 + "]" * 500)
    with SummaryWriter(str(tmp_path / "t")) as writer:
        writer.add_text(
            "h", "|param|value|\n|-|-|\n" + "".join(f"|p{n}|{v}|\n" for n, v in enumerate(values))
        )
        writer.add_scalar("return", 1.0, 1)
    made, _, problems = run_import(root, "tensorboard", tmp_path / "t")
    assert (len(made), problems) == (1, [])
    assert set(open_database(root).find("@last").hyper_param) == {"p0", "p1", "p2"}


def test_a_torn_event_file_gives_what_is_whole(root: Path, tmp_path: Path) -> None:
    write_events(tmp_path / "t", {"loss": [1.0, 2.0, 3.0]})
    (path,) = (tmp_path / "t").iterdir()
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 60)
    run_import(root, "tensorboard", tmp_path / "t")
    assert open_database(root).find("@last").scalars()["loss"].tolist()[:2] == [1.0, 2.0]


def test_csv_cells_are_copied_and_steps_found(root: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "monitor.csv").write_text('#{"t_start": 1}\nr,l,t\n1.25,10,0.5\n2,20,1.5')
    (tmp_path / "c" / "progress.csv").write_text('\ufefftime/total_timesteps,note\n100,"a, b"\n200,c\n')
    (tmp_path / "c" / "empty.csv").write_text("")
    made, _, problems = run_import(root, "csv", tmp_path / "c")
    assert len(made) == 2
    assert "empty.csv" in problems[0]
    monitor, progress = (
        next(run for run in open_database(root) if name in run.index) for name in ("monitor", "progress")
    )
    assert monitor.scalars()["r"].tolist() == [1.25, 2.0]
    assert monitor.scalars()["time-step"].tolist() == [10, 30]
    assert progress.scalars()["time-step"].tolist() == [100, 200]
    with (Path(progress.folder("log")) / "progress.csv").open() as file:
        assert [row["note"] for row in csv.DictReader(file)] == ["a, b", "c"]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_columns_of_a_table_without_commas(root: Path, tmp_path: Path, mark: str) -> None:
    rows = [["step", "loss", "note"], ["10", "0.5", "a, b"], ["20", "0.25", "x" * 200_000]]
    (tmp_path / "r.csv").write_text("\n".join(mark.join(row) for row in rows))
    run_import(root, "csv", tmp_path / "r.csv")
    frame = open_database(root).find("@last").scalars()
    assert (frame["loss"].tolist(), frame["time-step"].tolist()) == ([0.5, 0.25], [10, 20])
    assert {"step", "note"} <= set(frame)


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["0,5", "-1,25e-3"], ["0.5", "-1.25e-3"]),
        (["0.5", "64,64"], ["0.5", "64,64"]),
        (["a,b", ""], ["a,b", ""]),
    ],
)
def test_numbers_with_decimal_commas(root: Path, tmp_path: Path, cells: list[str], found: list[str]) -> None:
    (tmp_path / "r.csv").write_text("step;x;y\n3;{};{}\n".format(*cells))
    made, _, _ = run_import(root, "csv", tmp_path / "r.csv")
    with (root / "log" / made[0] / "progress.csv").open(newline="") as file:
        assert list(csv.reader(file))[1] == ["3", *found, "3"]


@pytest.mark.parametrize("text", ["a;b\n1\n2\n", "a;b,c;d\n1,2\n", "what\n1;2\n", "a,b;c\n1\n"])
def test_a_semicolon_in_a_header_may_be_part_of_a_name(root: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    made, _, _ = run_import(root, "csv", tmp_path / "r.csv")
    header = (root / "log" / made[0] / "progress.csv").read_text().splitlines()[0]
    assert header == f"{text.splitlines()[0]},time-step"


def test_garage(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "local" / "experiment" / "my_run"
    folder.mkdir(parents=True)
    (folder / "progress.csv").write_text(
        "Iteration,TotalEnvSteps,Evaluation/AverageReturn\n0,2000,12.5\n1,4000,13\n"
    )
    (folder / "variant.json").write_text(json.dumps({"seed": 3, "lr": 0.01}))
    (folder / "metadata.json").write_text(
        json.dumps({"githash": "abc", "environment": {"packages": {"numpy": "2"}}})
    )
    os.utime(folder / "variant.json", (1e9, 1e9))
    run_import(root, "garage", tmp_path / "data")
    run = open_database(root).find("@last")
    assert run.hyper_param.seed == 3
    assert run.hyper_param.flat() == {"seed": 3, "lr": 0.01}  # not the packages of metadata.json
    around = json.loads(Path(run.folder("log"), "environment.json").read_text())
    assert around == {"packages": {"numpy": "2"}, "githash": "abc"}
    assert run.record.opened == pytest.approx(1e9)
    assert run.scalars()["time-step"].tolist() == [2000, 4000]
    assert run.scalars()["Evaluation/AverageReturn"].tolist() == [12.5, 13]


def test_secrets_of_an_older_launcher_are_not_imported(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "experiment" / "my_run_api_key=key-8841-xyz"
    folder.mkdir(parents=True)
    (folder / "progress.csv").write_text("TotalEnvSteps,x\n1,2\n")
    (folder / "variant.json").write_text('{"api_key": "key-8841-xyz", "login": {"password": 1234}, "lr": 1}')
    launch = {"arguments": ["--api-key", "key-8841-xyz", "--lr", "1"]}
    (folder / "metadata.json").write_text(json.dumps({"launch": launch}))
    assert len(run_import(root, "garage", folder.parent)[0]) == 1
    run = open_database(root).find("@last")
    assert run.hyper_param == {"api_key": "<hidden>", "login": {"password": "<hidden>"}, "lr": 1}
    assert "api_key=<hidden>" in run.index
    for path in root.rglob("*"):
        assert "key-8841" not in path.name
        assert not path.is_file() or b"key-8841" not in path.read_bytes(), path


def test_a_folder_that_dowel_wrote(root: Path) -> None:
    """Outputs of dowel 0.0.4, garage's logger: CsvOutput and TextOutput, beside what its launcher writes."""
    folder = Path(__file__).parent / "data" / "garage"
    assert len(run_import(root, "garage", folder)[0]) == 1
    run = open_database(root).find("@last")
    with (folder / "my_run" / "progress.csv").open() as file:
        original = list(csv.DictReader(file))
    frame = run.scalars()
    assert len(frame) == len(original) == 4
    for name in original[0]:
        assert list(map(repr, frame[name].tolist())) == [repr(float(row[name])) for row in original]
    assert frame["time-step"].tolist() == frame["TotalEnvSteps"].tolist() == [2000, 4000, 6000, 8000]
    assert run.hyper_param["hidden_sizes"] == [32, 32]
    assert "metadata" not in run.hyper_param
    assert json.loads(Path(run.folder("log"), "environment.json").read_text())["githash"] == "abc-dirty"
    text = (folder / "my_run" / "debug.log").read_text()
    assert Path(run.folder("log"), "log.txt").read_text() == text


def write_launched(folder: Path, state: str) -> Path:
    """A folder as our own launcher leaves it, beside what the agent wrote."""
    log = folder / "search_seed=3"
    (log / "tb" / "events").mkdir(parents=True)
    (log / "progress.csv").write_text("loss,time-step,timestamp\n0.5,1,1010.0\n0.25,2,1020.0\n")
    (log / "variant.json").write_text('{"seed": 3}')
    (log / "tb" / "events" / "events.out.tfevents.1.box").write_bytes(b"")
    about = {"format": 1, "run_id": "ab", "state": state, "reason": "why", "exit_code": 3, "host": "box"}
    about |= {"opened": 1000.0, "last_row": 1020.0, "closed": 1060.0, "updated": 1060.0}
    about |= {"streams": ["ab-1"], "parent": {"run": "x"}, "table": "", "index": "", "time_step": 2}
    (log / "run.json").write_text(json.dumps(about))
    return log


def test_the_state_of_our_own_launchers_runs_is_kept(root: Path, tmp_path: Path) -> None:
    log = write_launched(tmp_path / "data", "failed")
    assert len(run_import(root, "garage", tmp_path / "data")[0]) == 1
    run = open_database(root).find("@last")
    assert (run.state, run.record.host, run.record.opened, run.record.duration_s) == (
        "failed",
        "box",
        1000,
        60,
    )
    about = json.loads(Path(run.folder("log"), "run.json").read_text())
    assert (about["reason"], about["exit_code"]) == ("why", 3)
    assert not {"run_id", "streams", "parent", "table"} & set(about)  # a copy that nobody goes on in
    assert len(list(Path(run.folder("log"), "tb", "events").iterdir())) == 1
    (log / "progress.csv").touch()
    assert run_import(root, "garage", tmp_path / "data") == ([], [f"new/{run.index}"], [])


def test_what_was_running_is_unknown_and_can_be_removed(root: Path, tmp_path: Path) -> None:
    write_launched(tmp_path / "data", "running")
    run_import(root, "garage", tmp_path / "data")
    run = open_database(root).find("@last")
    assert run.state == "unknown"
    assert not run.record.is_live(1061.0)


def test_a_broken_run_file_is_told_and_imports_nothing(root: Path, tmp_path: Path) -> None:
    (write_launched(tmp_path / "data", "failed") / "run.json").write_text('{"state": ')
    made, _, (problem,) = run_import(root, "garage", tmp_path / "data")
    assert made == []
    assert "run.json" in problem


def test_tensorboard_every_value_of_a_step(root: Path, tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path / "runs")) as writer:
        for value in (12.0, 9.0, 30.0):  # three environments whose episodes ended in one step
            writer.add_scalar("return", value, 8)
        writer.add_scalar("time-step", 5.0, 8)
    made, _, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert problems == []
    rows = (root / "log" / made[0] / "progress.csv").read_text().splitlines()
    assert [row.rsplit(",", 1)[0] for row in rows] == [
        "return,_time-step,time-step",
        "12.0,5.0,8",
        "9.0,,8",
        "30.0,,8",
    ]


def test_a_file_that_is_no_csv_does_not_end_the_import(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'step,text\n1,"x"\n2,y\rz\n')
    (tmp_path / "b.csv").write_text("step,loss\n1,0.5\n")
    made, _, (problem,) = run_import(root, "csv", tmp_path)
    assert len(made) == 1
    assert problem.startswith(f"{tmp_path / 'a.csv'} cannot be read: ")


def test_hparams_and_every_value_of_torchs_writer(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import numpy as np
    from torch.utils.tensorboard import SummaryWriter

    values = {
        f"group/{name}": [math.sin(step * name) * 10.0**name for step in range(200)] for name in range(1, 6)
    }
    with SummaryWriter(str(tmp_path / "t" / "run 1")) as writer:
        for tag, series in values.items():
            for step, value in enumerate(series):
                writer.add_scalar(tag, value, step * 7, walltime=1e9 + step)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 0)  # folders of their own below
        writer.add_histogram("h", np.array([1.0, 2.0, 3.0]), 0)
        writer.add_hparams({"lr": 0.1}, {"final": 0.5}, run_name="tuned")
    made, _, problems = run_import(root, "tensorboard", tmp_path / "t")
    assert (len(made), problems) == (1, [])
    frame = open_database(root).find("@last").scalars().set_index("time-step")
    for tag, series in values.items():
        assert frame[tag].dropna().tolist() == [struct.unpack("f", struct.pack("f", v))[0] for v in series]
        assert list(frame[tag].dropna().index) == [step * 7 for step in range(200)]
    assert frame["timestamp"].tolist()[1:3] == [1e9 + 1, 1e9 + 2]
    assert open_database(root).find("@last").hyper_param == {"lr": 0.1}
    assert frame["final"].dropna().to_dict() == {199 * 7: 0.5}  # as of a writer of ours: of the last step
    assert frame[["both/a", "both/b"]].dropna().to_dict("index") == {0: {"both/a": 1.0, "both/b": 2.0}}
    folder = root / "log" / made[0] / "tb" / "events"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"both_a", "both_b", "tuned"}
    assert run_import(root, "tensorboard", tmp_path / "t") == ([], made, [])


@pytest.mark.parametrize("module", ["torch.utils.tensorboard", "tensorboardX"])
def test_what_a_writer_puts_below_its_folder_is_of_its_run(root: Path, tmp_path: Path, module: str) -> None:
    make_writer = pytest.importorskip(module).SummaryWriter
    with (
        make_writer(str(tmp_path / "runs" / "a")) as writer,
        make_writer(str(tmp_path / "runs" / "a" / "eval")) as other,
    ):
        for step in range(3):
            writer.add_scalar("return", float(step), step)
            writer.add_scalars("loss/of it", {"train": step + 0.5, "b/c": -1.0 * step}, step)
            other.add_scalar("return", 7.0, step)
        writer.add_hparams({"lr": 0.1, "name": "x"}, {"return": 2.0, "best of": 5.0})
    made, _, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), problems) == (2, [])
    run, own = sorted(open_database(root), key=lambda one: "eval" in one.index)
    assert run.hyper_param == {"lr": 0.1, "name": "x"}
    main, best = ("loss/of it", "best of") if module.startswith("torch") else ("loss/of_it", "best_of")
    frame = run.scalars()
    series = {
        name: dict(frame[["time-step", name]].dropna().to_numpy().tolist())
        for name in frame
        if name != "time-step"
    }
    assert series[f"{main}/train"] == {0: 0.5, 1: 1.5, 2: 2.5}
    assert series[f"{main}/b/c"] == {0: 0.0, 1: -1.0, 2: -2.0}
    assert series[best] == {2: 5.0}
    assert frame["return"].dropna().tolist() == [0.0, 1.0, 2.0, 2.0]  # no value of the end among the first
    assert own.scalars()["return"].tolist() == [7.0] * 3
    assert run_import(root, "tensorboard", tmp_path / "runs") == ([], made, [])


@pytest.mark.parametrize("module", ["torch.utils.tensorboard", "tensorboardX"])
def test_runs_below_a_folder_with_events_of_its_own(root: Path, tmp_path: Path, module: str) -> None:
    make_writer = pytest.importorskip(module).SummaryWriter
    with make_writer(str(tmp_path / "runs")) as writer:  # of somebody who compares them
        writer.add_scalar("best", 1.0, 1)
    for number in range(3):
        with make_writer(str(tmp_path / "runs" / f"loss_{number}")) as writer:
            writer.add_scalar("loss", float(number), 1)
    for file in (tmp_path / "runs").glob("*/*"):  # each of a process of its own
        file.rename(file.with_name(file.name.replace(f".{os.getpid()}.", ".7.")))
    made, _, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), problems) == (4, [])
    found = [run.scalars()["loss"].tolist() for run in open_database(root) if "loss" in run.index]
    assert sorted(found) == [[0.0], [1.0], [2.0]]


def test_runs_that_began_before_the_events_above_them(root: Path, tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    for name in ("runs/loss/a", "runs"):
        with SummaryWriter(str(tmp_path / name)) as writer:
            writer.add_scalar("loss", 1.0, 1)
    (file,) = (tmp_path / "runs" / "loss" / "a").iterdir()
    file.rename(file.with_name(re.sub(r"\d+", lambda when: str(int(when[0]) - 60), file.name, count=1)))
    made, _, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), problems) == (2, [])


def test_folders_that_nobody_may_look_into_are_told(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_events(tmp_path / "runs" / "one", {"loss": [1.0]})
    write_events(tmp_path / "runs" / "two", {"loss": [1.0]})
    scan = os.scandir

    def guarded(path: Path | str) -> object:
        if str(path).endswith("two"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)  # root may look into all of them
    made, _, (problem,) = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), "two cannot be read: PermissionError" in problem) == (1, True)


def test_equal_trials_are_read_in_their_order(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path / "runs")) as writer:
        writer.add_scalar("loss", 1.0, 5)
        for number in range(4):
            writer.add_hparams({"lr": math.nan}, {"accuracy": float(number)}, name=f"{number}")
    walk = os.walk

    def backwards(top: Path, **_: object) -> Iterator[tuple[str, list[str], list[str]]]:
        for here, below, names in walk(top):
            below.sort(reverse=True)
            yield here, below, names

    monkeypatch.setattr(os, "walk", backwards)
    made, _, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), problems) == (1, [])
    assert open_database(root).find("@last").scalars()["accuracy"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_trials_that_one_writer_tells_of_are_runs(root: Path, tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path / "runs")) as writer:
        for number in range(3):
            writer.add_hparams({"lr": 0.1 * number}, {"accuracy": 10.0 * number}, name=f"trial {number}")
    made, _, problems = run_import(root, "tensorboard", tmp_path / "runs")
    assert (len(made), len(problems)) == (3, 1)  # the writer itself has no scalar
    found = {run.hyper_param.lr: run.scalars()["accuracy"].tolist() for run in open_database(root)}
    assert found == {0.1 * number: [10.0 * number] for number in range(3)}


def test_one_event_file_is_its_folders_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_events(tmp_path / "runs" / "one", {"loss": [1.0, 2.0]})
    (path,) = (tmp_path / "runs" / "one").iterdir()
    made, _, problems = run_import(root, "tensorboard", path)
    assert (len(made), problems, made[0].endswith("&source=one")) == (1, [], True)
    assert open_database(root).find("@last").scalars()["loss"].tolist() == [1.0, 2.0]
    assert run_import(root, "tensorboard", path.parent) == ([], made, [])
    monkeypatch.chdir(path.parent)
    assert run_import(root, "tensorboard", Path(path.name)) == ([], made, [])
    (tmp_path / "words.txt").write_text("no events")
    with pytest.raises(ArgumentError, match="nothing to import"):
        run_import(root, "tensorboard", tmp_path / "words.txt")


def test_nothing_to_import_is_said(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no garage logs"):
        run_import(root, "garage", tmp_path)
    with pytest.raises(ArgumentError, match="there are: tensorboard"):
        run_import(root, "comet", tmp_path)


def test_what_rerun_made_is_imported_on_request_alone(root: Path, tmp_path: Path) -> None:
    for name in ("search", "search-rerun/run"):
        log = tmp_path / "data" / name
        log.mkdir(parents=True)
        (log / "progress.csv").write_text("loss,time-step\n0.5,1\n")
        (log / "variant.json").write_text('{"seed": 3}')
    made, _, (told,) = run_import(root, "garage", tmp_path / "data")
    assert len(made) == 1
    assert "--reruns" in told
    with changing(root, 1000.0):
        done = import_logs(root, "garage", tmp_path / "data", "new", 1000.0, reruns=True)
    made, there = done.made, done.there
    assert (len(made), len(there)) == (1, 1)


def test_of_mlflows_folder_the_runs_that_are_not_deleted(root: Path, tmp_path: Path) -> None:
    def put(place: str, text: str) -> None:
        path = tmp_path / "mlruns" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    put("1/meta.yaml", "experiment_id: '1'\nname: walk\n")
    for name, stage in (("a1", "active"), ("b2", "deleted")):
        put(f"1/{name}/meta.yaml", f"run_id: {name}\nlifecycle_stage: {stage}\nstatus: 3\nstart_time: 1000\n")
        put(
            f"1/{name}/metrics/loss", "1000 0.5 0\n1001 nan 1\n1002 0.1 9007199254740993\n1003 0.5 1"
        )  # of step 12, cut by a kill
    put("1/c3/meta.yaml", "run_id: c3\nstart_time: 1000\n")
    put("1/c3/metrics/loss", "1000 0.5 0\n1001\n1002 0.1 2\n")
    put(".trash/2/meta.yaml", "experiment_id: '2'\nname: old\nlifecycle_stage: deleted\n")
    put("models/policy/meta.yaml", "name: policy\n")
    made, there, (problem,) = run_import(root, "mlflow", tmp_path)
    assert (len(made), there) == (1, [])
    assert problem.startswith(f"{tmp_path / 'mlruns' / '1' / 'c3'} cannot be read: ")
    rows = (root / "log" / made[0] / "progress.csv").read_text().splitlines()[1:]
    assert [row.rsplit(",", 1)[0] for row in rows] == ["0.5,0", "nan,1", "0.1,9007199254740993"]


@pytest.mark.slow
def test_event_files_are_read_without_torch(root: Path, tmp_path: Path) -> None:
    """tensorboardX imports it, for up to 20 s; and can be imported by others afterwards."""
    write_events(tmp_path / "runs", {"loss": [1.0, 2.0]})
    script = """if True:
        import sys
        from pathlib import Path
        from rla_client.database.changes.change_lock import changing
        from rla_client.database.imports.import_logs import import_logs
        with changing(Path(sys.argv[1]), 1000.0):
            done = import_logs(Path(sys.argv[1]), "tensorboard", Path(sys.argv[2]), None, 1000.0)
        assert (len(done.made), done.problems) == (1, []), done
        assert not {"torch", "tensorboardX"} & {name.partition(".")[0] for name in sys.modules}
        from tensorboardX import SummaryWriter
        SummaryWriter(sys.argv[2] + "/after").add_scalar("x", 1.0, 1)
    """
    words = [sys.executable, "-c", script, str(root), str(tmp_path / "runs")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_folder_of_an_experiment_of_mlflow_or_of_a_run(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "mlruns"
    for experiment, names in (("11", ("aa", "bb")), ("22", ("cc",))):
        (runs / experiment / "models" / "m-1").mkdir(parents=True)
        (runs / experiment / "models" / "m-1" / "meta.yaml").write_text("model_id: m-1\n")
        (runs / experiment / "meta.yaml").write_text(
            f"experiment_id: '{experiment}'\nname: walk{experiment}\n"
        )
        for name in names:
            (runs / experiment / name / "metrics").mkdir(parents=True)
            (runs / experiment / name / "meta.yaml").write_text(
                f"run_id: {name}\nrun_name: of-{name}\nstatus: 3\nstart_time: 1000000\nend_time: 1001000\n"
            )
            (runs / experiment / name / "metrics" / "loss").write_text("1000500 0.5 3\n")

    def imported(folder: Path) -> tuple[int, int, set[str]]:
        with changing(root, 1000.0):
            done = import_logs(root, "mlflow", folder, None, 1000.0)
        assert done.problems == []
        return len(done.made), len(done.there), {run.partition("/")[0] for run in done.made}

    assert imported(runs / "11" / "bb") == (1, 0, {"walk11"})
    assert imported(runs / "11") == (1, 1, {"walk11"})
    assert imported(runs) == (1, 2, {"walk22"})


def imported_table(root: Path, path: Path) -> tuple[Run, list[str]]:
    """What `rla import csv` made of a file or folder with one table, and what it said."""
    with changing(root, 1000.0):
        done = import_logs(root, "csv", path, "new", 1000.0)
    assert (len(done.made), done.problems) == (1, [])
    return open_database(root).find(done.made[0]), list(done.remarks)


def test_blanks_around_names_and_cells(root: Path, tmp_path: Path) -> None:
    text = "   epoch,  train/loss,  val/acc,note\n       1,   0.5000,   0.25, a b \n   2, 0.2500, 0.75,\n"
    (tmp_path / "results.csv").write_text(text)
    run, remarks = imported_table(root, tmp_path)
    rows = run.scalars()
    assert rows["time-step"].tolist() == [1, 2]
    assert (rows["train/loss"].tolist(), rows["val/acc"].tolist()) == ([0.5, 0.25], [0.25, 0.75])
    assert "0.5000,0.25,a b,1" in (Path(run.folder("log")) / "progress.csv").read_text()
    assert remarks == ["the time-step is the column 'epoch'"]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a.csv", "num_env_steps,ret"),
        ("a.csv", "Epoch,ret"),
        ("a.csv", "training_iteration,ret"),
        ("a.csv", "total/steps,ret"),
        ("a.csv", "Timesteps,ret"),
        ("a.csv", "TIMESTEPS_TOTAL,ret"),
        ("a.csv", "env_runners/num_env_steps_sampled_lifetime,ret"),
        ("a.csv", "misc/total_timesteps,ret"),
        ("a.csv", "ret,Step"),
        ("a.csv", "epoch,global_step"),
        ("progress.txt", "TotalEnvInteracts\tret"),
        ("progress.txt", "ret\tTotalEnvInteracts"),
    ],
)
def test_the_column_that_counts_steps(root: Path, tmp_path: Path, name: str, header: str) -> None:
    mark = "\t" if "\t" in header else ","
    counts = ["1000", "2000"]
    names = header.split(mark)
    place = 1 if names[0] in {"ret", "epoch"} else 0
    rows = [mark.join([count, "1"] if place == 0 else ["1", count]) for count in counts]
    (tmp_path / name).write_text("\n".join([header, *rows]))
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["time-step"].tolist() == [1000, 2000]
    assert remarks == [f"the time-step is the column {names[place]!r}"]


def test_a_table_of_nul_bytes(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(bytes(2000))
    (tmp_path / "b.csv").write_bytes(b"step,ret\n1,2\n" + bytes(2000))
    (made,), _, (problem,) = run_import(root, "csv", tmp_path)
    assert "b.csv" in made
    assert "a.csv cannot be read: it begins with NUL bytes" in problem


def test_without_a_column_of_steps_the_row_counts(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,ret\nfirst,1\nsecond,2\n")
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["time-step"].tolist() == [0, 1]
    assert "number of the row" in remarks[0]


def test_a_table_without_names(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("9.5e+01\n9.6e+01\n9.7e+01\n")
    made, _, (problem,) = run_import(root, "csv", tmp_path)
    assert made == []
    assert "its first line holds numbers instead of names" in problem
    (tmp_path / "a.csv").write_text(",loss,loss\n0,0.5,0.25\n")
    assert {"c0", "loss", "loss.1"} <= set(imported_table(root, tmp_path)[0].scalars())


@pytest.mark.parametrize(
    "text", ["train,1,0.5\ntrain,2,0.25\n", "2024-01-01 10:00,0.5\n2024-01-01 10:01,0.25\n"]
)
def test_a_table_without_names_that_holds_texts(root: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    made, _, (problem,) = run_import(root, "csv", tmp_path)
    assert made == []
    assert "its first line holds" in problem
    (tmp_path / "a.csv").write_text("step,0.25,0.5\n10,1,2\n20,3,4\n")  # quantiles
    assert imported_table(root, tmp_path)[0].scalars()["0.25"].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-16", ","), ("utf-16", "\t"), ("cp1252", ";"), ("utf-8-sig", ",")]
)
def test_tables_as_windows_writes_them(root: Path, tmp_path: Path, encoding: str, mark: str) -> None:
    text = "step,Güte\r\n10,0.5\r\n20,0.25\r\n".replace(",", mark)
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    rows = imported_table(root, tmp_path)[0].scalars()
    assert (rows["Güte"].tolist(), rows["time-step"].tolist()) == ([0.5, 0.25], [10, 20])


@pytest.mark.parametrize(
    ("text", "values", "left_out"),
    [
        ("MeanGate,MinGate,MaxGate\n[0.1 0.2],[0.3 0.4],[0.5 0.6]\n0.4,2.0\n", [0.5, 0.4], 2),
        ("loss,ret\n0.4,2.0\n", [0.5, 0.4], 0),  # started again
        ("other,names\n7,8\n9,10\nloss,ret\n0.4,2.0\n", [0.5, 0.4], 3),
        ("0.4,2.0,9\n0.3,1.0,\n", [0.5, 0.3], 1),
        ("nan,inf\n0.4,2.0\n", [0.5, 0.4], 0),
    ],
)
def test_rows_of_another_header(
    root: Path, tmp_path: Path, text: str, values: list[float], left_out: int
) -> None:
    (tmp_path / "progress.csv").write_text(f"loss,ret\n0.5,1.0\n{text}")
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["loss"].dropna().tolist() == values
    assert [one for one in remarks if "left out" in one] == (
        [f"left out {left_out} row(s) that do not fit the header"] if left_out else []
    )


def test_parameters_beside_a_table(root: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n")
    (tmp_path / "hparams.yaml").write_text("lr: 0.1\nnet: [64, 64]\n")
    assert imported_table(root, tmp_path)[0].record.hyper == {"lr": 0.1, "net": [64, 64]}
    monitor = tmp_path / "sb3"
    monitor.mkdir()
    head = '#{"t_start": 1767323045.5, "env_id": "CartPole-v1"}'
    (monitor / "monitor.csv").write_text(f"{head}\nr,l,t\n1.25,10,0.5\n")
    run, _ = imported_table(root, monitor)
    assert run.record.hyper == {"env_id": "CartPole-v1"}
    assert run.record.opened == pytest.approx(1767323045.5)


def test_what_a_program_put_into_sacreds_info(root: Path, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    about = {"experiment": {"name": "pymarl"}, "status": "COMPLETED", "start_time": "2024-01-01T00:00:00"}
    info = {
        "return_mean": [1.5, {"dtype": "float64", "py/object": "numpy.float64", "value": 2.5}],
        "return_mean_T": [100, 200],
        "note": "kept",
    }
    for name, content in (("run", about), ("config", {"lr": 0.1}), ("metrics", {}), ("info", info)):
        (tmp_path / "1" / f"{name}.json").write_text(json.dumps(content))
    assert run_import(root, "sacred", tmp_path)[2] == []
    run = open_database(root).find("@last")
    rows = run.scalars()
    assert (rows["return_mean"].tolist(), rows["time-step"].tolist()) == ([1.5, 2.5], [100, 200])
    assert json.loads(Path(run.folder("results"), "info.json").read_text()) == info
    shutil.copytree(tmp_path / "1", tmp_path / "torn" / "2")
    (tmp_path / "torn" / "2" / "info.json").write_text('{"return_mean": [1.5')
    assert [len(part) for part in run_import(root, "sacred", tmp_path / "torn")] == [1, 0, 0]


def sacred_folder(folder: Path, **files: object) -> None:
    """A run of sacred; files that are texts are written as they are."""
    about = {"experiment": {"name": "x"}, "status": "RUNNING", "start_time": "2024-01-01T00:00:00"}
    folder.mkdir(parents=True)
    for name, content in {"run": about, "config": {"lr": 0.1}, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)


def test_a_run_of_sacred_that_was_killed_while_it_wrote(root: Path, tmp_path: Path) -> None:
    curve = {"return": [1.5, 2.5, 3.5], "return_T": [100, 200]}  # stored between two `append`
    sacred_folder(tmp_path / "1", config='{"lr": ', metrics='{"loss": {"steps": [0, 1', info=curve)
    with changing(root, 1000.0):
        done = import_logs(root, "sacred", tmp_path, "new", 1000.0)
    assert done.problems == []
    assert [remark.split()[0] for remark in done.remarks] == ["config.json", "metrics.json"]
    run = open_database(root).find("@last")
    rows = run.scalars()
    assert (rows["return"].tolist(), rows["time-step"].tolist()) == ([1.5, 2.5], [100, 200])
    copied = {path.name for path in Path(run.folder("results")).iterdir()}
    assert copied == {"info.json", "metrics.json"}  # of config.json no value was looked at for secrets


def test_a_value_of_sacred_without_a_step_does_not_lose_the_run(root: Path, tmp_path: Path) -> None:
    when = ["2024-01-01T00:00:00"] * 2
    sacred_folder(
        tmp_path / "1", metrics={"loss": {"steps": [None, 7], "timestamps": when, "values": [0.5, 0.25]}}
    )
    assert run_import(root, "sacred", tmp_path)[2] == []
    rows = open_database(root).find("@last").scalars()
    assert (rows["loss"].tolist(), rows["time-step"].tolist()) == ([0.25], [7])


def test_many_equal_names(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x.2," + "x," * 20_000 + "x\n")
    began = time.monotonic()
    names = tables.read_table(tmp_path / "a.csv").columns
    assert time.monotonic() - began < 20  # each name with a look at all before it took hours
    assert names[:4] == ["x.2", "x", "x.1", "x.3"]
    assert len(set(names)) == 20_002


def test_more_columns_than_a_row_may_have(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x" + ",x" * MAX_KEYS_PER_ROW + "\n")
    (tmp_path / "b.csv").write_text("x" + ",x" * 60_000 + "\n" + "1,2\n" * 2000)
    made, _, problems = run_import(root, "csv", tmp_path)
    assert made == []
    assert ["are more than one progress.csv may have" in one for one in problems] == [True, True]


def test_rows_of_a_narrower_header(root: Path, tmp_path: Path) -> None:
    ours, other = "step,loss,reward,entropy\n", "step,reward,loss\n3,12,0.35\n"
    (tmp_path / "a.csv").write_text(f"{ours}1,0.5,10,0.1\n{other}4,0.25,11,0.2\n{ours}5,0.125,12\n")
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["loss"].tolist() == [0.5, 0.25, 0.125]
    assert "left out 2 row(s) that do not fit the header" in remarks


def test_a_torn_last_row_is_left_out(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("loss,step\n0.5,10\n0.25,20\n0.1")
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["loss"].tolist() == [0.5, 0.25]
    assert remarks == ["the time-step is the column 'step'", "left out 1 row(s) that do not fit the header"]


def test_a_blank_step_is_that_of_the_row_before(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss,frames\n,0.5,\n10,0.4,\nNaN,0.3,\n20,0.2,\n20\n")
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["time-step"].tolist() == [10, 10, 10, 20, 20]
    assert remarks == ["the time-step is the column 'step'"]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("episode,steps,reward\n1,200,5\n2,31,6\n3,180,7\n", "episode"),
        ("episode,train/steps,reward\n1,200,5\n2,31,6\n", "episode"),
        ("steps,reward\n200,5\n31,6\n", "steps"),
        ("steps,epoch,reward\n200,1,5\n31,0,6\n", "steps"),
        ("epoch;steps;reward\n1;9,5;5\n2;10,5;6\n", "steps"),
    ],
)
def test_a_column_of_steps_that_never_falls_is_preferred(
    root: Path, tmp_path: Path, text: str, column: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert imported_table(root, tmp_path)[1] == [f"the time-step is the column {column!r}"]


@pytest.mark.parametrize("mark", [",", ";"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_quote_that_is_never_closed(root: Path, tmp_path: Path, mark: str, end: str) -> None:
    rows = ["step,note", '1,"a, b"', '2,"c', "3,d", "4,e"]
    (tmp_path / "a.csv").write_text("\n".join(rows).replace(",", mark) + end)
    made, _, problems = run_import(root, "csv", tmp_path)
    assert made == []
    assert problems == [
        f"{tmp_path / 'a.csv'} cannot be read: a quote is never closed: the 2 lines behind it are one cell"
    ]


def test_the_steps_of_sb3s_monitor(root: Path, tmp_path: Path) -> None:
    table = "r,l,t,level\n1.25,10,0.5,1\n2,20,1.5,1\n3,5,2,2\n"
    (tmp_path / "0.monitor.csv").write_text(f'#{{"t_start": 1767323045.5}}\n{table}')
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["time-step"].tolist() == [10, 30, 35]
    assert remarks == ["the time-step is the sum of the column 'l' up to the row, as SB3 plots it"]
    (tmp_path / "0.monitor.csv").unlink()
    (tmp_path / "other.csv").write_text(table)  # of any program
    run, _ = imported_table(root, tmp_path / "other.csv")
    assert run.scalars()["time-step"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("line", ["sep=;", "SEP=;", '"sep=;"', "sep=|", "sep=\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_mark_that_excel_names_first(root: Path, tmp_path: Path, line: str, end: str) -> None:
    mark = line.strip('"')[-1]
    rows = [line, f"step{mark}loss", f"10{mark}0,5", f"20{mark}0,25", ""]
    (tmp_path / "a.csv").write_bytes(("\ufeff" + end.join(rows)).encode())
    run, remarks = imported_table(root, tmp_path)
    assert run.scalars()["loss"].tolist() == [0.5, 0.25]
    assert remarks == ["the time-step is the column 'step'"]


def test_a_long_name_in_a_remark_is_cut(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\x1b" * 100_000 + "/step,loss\n1,0.5\n")
    (remark,) = imported_table(root, tmp_path)[1]
    assert remark == "the time-step is the column '" + r"x\x1b" * 50 + "…'"


def test_the_folder_above_the_current_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "mlruns" / "11" / "aa"
    (run / "metrics").mkdir(parents=True)
    (run.parent / "meta.yaml").write_text("experiment_id: '11'\nname: walk\n")
    (run / "meta.yaml").write_text("run_id: aa\nstatus: 3\nstart_time: 1000000\n")
    (run / "metrics" / "loss").write_text("1000500 0.5 3\n")
    monkeypatch.chdir(run / "metrics")
    with changing(root, 1000.0):
        done = import_logs(root, "mlflow", Path(".."), None, 1000.0)
    assert (len(done.made), done.problems) == (1, [])
    assert done.made[0].startswith("walk/")
    write_events(tmp_path / "runs" / "one", {"loss": [1.0]})
    (tmp_path / "runs" / "one" / "below").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs" / "one" / "below")
    made, _, problems = run_import(root, "tensorboard", tmp_path / "link" / "..")
    assert (len(made), problems, made[0].endswith("&source=one")) == (1, [], True)
