"""`rla init`, `rla_client.init` and `rla_client.log`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rla_client
from rla_client import ImgRecorder, exp_manager, logger
from rla_client.adapter import Joined, ensure_run
from rla_client.cli.commands.init import ignore, set_up, snippet_of
from rla_client.config.schema import Config, load_config, template_text
from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.run import process_end as process_end_module
from rla_client.run import run as run_module


def test_a_folder_becomes_a_project(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pyc")
    done = set_up(tmp_path)
    assert (tmp_path / "rla_config.yaml").read_text() == template_text()
    assert load_config(tmp_path / "rla_config.yaml").log_used == Config().log_used
    assert (tmp_path / ".gitignore").read_text().splitlines() == [
        "*.pyc",
        "# runs and their data (rla)",
        "/data/",
        "/plot.png",
    ]
    assert len(done) == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("mine")
    with pytest.raises(ArgumentError, match="was not touched"):
        set_up(tmp_path)
    assert (tmp_path / "rla_config.yaml").read_text() == "mine"
    assert not (tmp_path / ".gitignore").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="is a file, not a folder"):
        set_up(tmp_path / "file")


def test_a_project_gets_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "project"
    assert set_up(folder)[0] == f"made the folder {folder}"
    assert (folder / "rla_config.yaml").exists()


def test_lines_are_added_once(tmp_path: Path) -> None:
    path = tmp_path / ".gitignore"
    assert ignore(path, ["/data/"]) == ["/data/"]
    assert ignore(path, ["/data/"]) == []
    path.write_text("data\n")
    assert ignore(path, ["/data/"]) == [], "the user's own way to say it"


def test_the_command(tmp_path: Path) -> None:
    code = (
        "import typer; from rla_client.cli.commands.init import register; "
        "app = typer.Typer(); register(app); app.command('x')(lambda: None); app()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "init", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f'rla_client.init("{tmp_path.name}", config=args' in done.stdout
    assert (tmp_path / "rla_config.yaml").exists()


@pytest.mark.usefixtures("fresh_manager")
@pytest.mark.parametrize("data", ["data", "data/", "my runs"])
def test_what_init_tells_to_add_records_below_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    project = tmp_path / 'the "project"'
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("RLA_DATA_ROOT", raising=False)
    told = snippet_of(Path(), data)
    lines = [line.strip() for line in told.splitlines() if line.startswith("    ")]
    names = {"args": {"seed": 1}, "step": 3, "loss": 0.5}
    exec("\n".join(lines), names)
    assert exp_manager.log_dir is not None
    assert Path(exp_manager.log_dir).is_relative_to(project / data / "log")
    assert ("--data-root 'my runs'" in told) is (data == "my runs")


@dataclass
class Args:
    lr: float = 0.1
    seed: int = 1


@pytest.mark.usefixtures("fresh_manager")
def test_init_with_everything_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "code" / "deep"
    below.mkdir()
    (tmp_path / "code" / "rla_config.yaml").write_text("LOG_USED: [csv]\nAGENT: {autostart: false}\n")
    monkeypatch.chdir(below)
    monkeypatch.delenv("RLA_DATA_ROOT", raising=False)
    manager = rla_client.init("cartpole", config=Args(), track=["seed"])
    assert manager.run is exp_manager.run is not None
    assert str(manager.log_dir).startswith(str(tmp_path / "code" / "data" / "log" / "cartpole"))
    assert manager.hyper_param == {"lr": 0.1, "seed": 1}
    assert manager.info == "&seed=1"
    manager.close()
    rla_client.init("cartpole", config=Args(seed=2), track=["seed"])
    assert exp_manager.info == "&seed=2", "nothing is left from the former one"
    assert (manager.info, manager.run) == ("&seed=1", None), "the handle is that of its run"


@pytest.mark.usefixtures("fresh_manager")
def test_init_without_a_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_DATA_ROOT", str(tmp_path / "elsewhere"))
    manager = rla_client.init("t", config={"a": 1}, code_root=tmp_path / "code")
    assert str(manager.log_dir).startswith(str(tmp_path / "elsewhere"))
    assert manager.config is not None
    assert manager.config.log_used == ("brief", "log", "tensorboard", "csv")


@pytest.mark.usefixtures("fresh_manager")
def test_init_takes_every_kind_of_config(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    from rla_client.run.parameters.config_objects import to_parameters

    assert to_parameters(None) == {}
    assert to_parameters(Namespace(a=1)) == {"a": 1}
    assert to_parameters(Args()) == {"lr": 0.1, "seed": 1}
    config = omegaconf.OmegaConf.create({"a": {"b": 1}, "c": "${a.b}"})
    assert to_parameters(config) == {"a": {"b": 1}, "c": 1}
    broken = {"a": "${b}", "b": 2, "c": "${gone}", "d": {"e": ["${..b}", "${no:1}"], "f": "???"}}
    assert to_parameters(omegaconf.OmegaConf.create(broken)) == {
        "a": 2, "b": 2, "c": "${gone}", "d": {"e": ["${..b}", "${no:1}"], "f": "???"}
    }  # fmt: skip
    for wrong in (5, "text", Args, [1]):
        with pytest.raises(ArgumentError, match="config takes"):
            to_parameters(wrong)
    with pytest.raises(ArgumentError, match="list of names"):
        rla_client.init("t", track="seed", data_root=tmp_path)


@pytest.fixture(name="rows")
def rows_fixture(tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """The rows of a run that is open."""
    seen: list[dict[str, Any]] = []
    manager = rla_client.init(
        "t",
        rla_config={"LOG_USED": ["csv"]},
        data_root=tmp_path / "data",
        code_root=tmp_path / "code",
        log_callback_fn=seen.append,
    )
    yield seen
    manager.close()


@pytest.mark.usefixtures("fresh_manager")
def test_log_writes_a_row_a_call(rows: list[dict[str, Any]]) -> None:
    row = rla_client.log({"loss": 0.5, "perf": {"return": 1, "eval": {"return": 2}}}, step=3)
    assert without_time(row) == {"loss": 0.5, "perf/return": 1, "perf/eval/return": 2, "time-step": 3}
    rla_client.log({"loss": 0.25}, 4)
    rla_client.log({"loss": 0.125})
    assert rla_client.log({}) == {}
    assert [row["time-step"] for row in rows] == [3, 4, 4], "the clock stands as it was set"


@pytest.mark.usefixtures("fresh_manager")
def test_log_counts_calls_as_long_as_nobody_sets_the_clock(rows: list[dict[str, Any]]) -> None:
    for _ in range(2):
        rla_client.log({"a": 1})
    rla_client.logger.record_tabular("b", 2)
    rla_client.log({})
    rla_client.time_step_holder.set_time(10)
    rla_client.log({"a": 1})
    assert [row["time-step"] for row in rows] == [0, 1, 2, 10]
    assert rows[2]["b"] == 2, "what was recorded before is part of the row"


@pytest.mark.usefixtures("fresh_manager")
def test_log_refuses_at_once_and_writes_nothing(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ArgumentError, match=r"log takes a dict of values, e\.g\."):
        rla_client.log("loss 0.5")  # type: ignore[arg-type]
    for step in ("one", float("nan"), float("-inf")):
        with pytest.raises(ArgumentError, match="a time-step is a finite number"):
            rla_client.log({"loss": 0.5}, step=step)  # type: ignore[arg-type]
    assert rla_client.time_step_holder.get_time() == 0
    assert rla_client.logger.getkvs() == {}
    assert rows == []


@pytest.mark.usefixtures("fresh_manager")
def test_log_takes_what_contains_itself(rows: list[dict[str, Any]]) -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    nested: dict[str, Any] = {"a": 1}
    nested["self"] = nested["again"] = nested  # twice: a way to each depth would be 2 ** 32 names
    rla_client.log({"list": endless, "dict": nested}, step=1)
    (row,) = rows
    assert row["list"] == [1, "..."]
    assert row["dict/a"] == 1
    assert row["dict/self"] == row["dict/again"] == "{'a': 1, 'self': {...}, 'again': {...}}"


@pytest.mark.usefixtures("fresh_manager")
def test_rows_of_two_threads_do_not_mix(rows: list[dict[str, Any]]) -> None:
    def write(name: str) -> None:
        for number in range(200):
            rla_client.log({f"{name}/x": number, f"{name}/y": number}, step=number)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows) == 400
    assert {tuple(sorted(without_time(row))) for row in rows} == {
        ("a/x", "a/y", "time-step"),
        ("b/x", "b/y", "time-step"),
    }
    for row in rows:
        assert set(without_time(row).values()) == {row["time-step"]}


def without_time(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "timestamp"}


@pytest.fixture
def table(tmp_path: Path, fresh_manager: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLA_DATA_ROOT", str(tmp_path / "data"))
    (tmp_path / "rla_config.yaml").write_text("LOG_USED: [csv]\nAGENT: {autostart: false}\n")
    return tmp_path / "data" / "log" / "t"


def spooled(run: rla_client.run_handle.OpenRun) -> list[dict[str, object]]:
    """The rows of an open run, as they lie in the spool."""
    assert run.run is not None
    assert run.run.outbox is not None
    assert run.run.outbox.stream_folder is not None
    found = []
    for segment in sorted(run.run.outbox.stream_folder.glob("*.seg")):
        frames = iter_frames(segment.read_bytes())
        found += [unpack(frame.payload) for frame in frames if frame.kind == FrameKind.ROW]
    return [{"time-step": row[0], **row[2]} for row in found]


@pytest.mark.usefixtures("table")
def test_runs_whose_handle_is_held_stay_open_beside_each_other() -> None:
    runs = [rla_client.init("t", config={"seed": seed}, track=["seed"]) for seed in range(3)]
    assert len({run.index for run in runs}) == len({run.id for run in runs}) == 3
    for step in range(1, 4):
        for number, run in enumerate(runs):
            run.log({"x": number * 10 + step}, step=step + number)
    rla_client.log({"last": 1}, step=9)
    assert exp_manager.run is runs[-1].run
    for number, run in enumerate(runs[:-1]):
        assert spooled(run) == [{"time-step": s + number, "x": number * 10 + s} for s in range(1, 4)]
        assert run.get_timestep() == 3 + number
    assert spooled(runs[-1])[-1] == {"time-step": 9, "last": 1}
    runs[-1].close()
    assert exp_manager.run is runs[1].run, "the run before is current again"
    assert runs[-1].log({"x": 1}, step=10) == {}
    for run in runs:
        run.close()
    assert exp_manager.run is None


@pytest.mark.usefixtures("table")
def test_tasks_of_asyncio_that_open_a_run_each_are_warned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rla_config.yaml").write_text("LOG_USED: [csv, stdout]\nAGENT: {autostart: false}\n")

    async def trial(seed: int, others: asyncio.Event) -> None:
        with rla_client.init("t", config={"seed": seed}, track=["seed"]) as run:
            if seed:
                others.set()
            await others.wait()
            run.log({"x": seed}, step=seed + 1)
            assert spooled(run) == [{"time-step": seed + 1, "x": seed}]

    async def together() -> None:
        others = asyncio.Event()
        await asyncio.gather(trial(0, others), trial(1, others))

    async def one_after_the_other() -> None:
        for seed in (1, 2):
            await asyncio.create_task(trial(seed, asyncio.Event()))
        with rla_client.init("t", config={"seed": 3}, track=["seed"]):
            await trial(4, asyncio.Event())  # the same task

    asyncio.run(together())
    assert capsys.readouterr().out.count("another asyncio task of this thread has a run open") == 1
    asyncio.run(one_after_the_other())
    assert "another asyncio task" not in capsys.readouterr().out


@pytest.mark.usefixtures("table")
def test_a_run_whose_handle_is_given_up_ends_when_the_next_begins() -> None:
    rla_client.init("t", config={"seed": 1})
    first = exp_manager.run
    run = rla_client.init("t", config={"seed": 2})
    assert first is not None
    assert first.outbox is not None
    assert first.outbox._closed, "nobody could write into it by name"
    second = run.run
    assert second is not None
    assert second.outbox is not None
    run = rla_client.init("t", config={"seed": 3})
    run.log({"x": 1}, step=1)
    assert second.outbox._closed
    assert len(spooled(run)) == 1


def written_by(joined: Joined) -> run_module.Run | None:
    """The run into which an adapter writes."""
    with joined.active():
        return exp_manager.run


@pytest.mark.usefixtures("table")
def test_an_adapter_never_writes_into_a_run_that_was_open_beside_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("rla_client").disabled = False
    first = rla_client.init("t", config={"seed": 1}, track=["seed"])
    joined = Joined()
    joined.join()
    second = rla_client.init("t", config={"seed": 2})
    assert written_by(joined) is first.run
    index = first.index
    first.close()
    for _ in range(3):
        assert written_by(joined) is None
        assert joined.is_left
    told = [record.message for record in caplog.records if "has ended" in record.message]
    assert told == [
        f"the run t/{index} has ended, and the one that is open is another: what is logged for it is not kept"
    ]
    second.close()
    assert written_by(joined) is None
    third = rla_client.init("t", config={"seed": 3})
    assert written_by(joined) is third.run, "which was opened in its place"


@pytest.mark.usefixtures("table")
def test_an_adapter_goes_on_in_the_run_that_took_the_place_of_its_own() -> None:
    joined = Joined()
    run = rla_client.init("t", config={"seed": 0})
    joined.join()
    for seed in range(1, 3):
        run = rla_client.init("t", config={"seed": seed})  # the handle of the one before is given up after
        run.log({"x": 1}, step=1)
        assert written_by(joined) is run.run
    run.close()
    exp_manager.log_files_gen()
    assert written_by(joined) is exp_manager.run is not None


def open_runs() -> list[Any]:
    return [*process_end_module.open_runs]


@pytest.mark.usefixtures("table")
def test_a_run_that_is_given_up_does_not_end_in_the_garbage_collector() -> None:
    run = rla_client.init("t")
    first = run.run
    assert first is not None
    assert first.outbox is not None
    beside = rla_client.init("t")
    with logger.get_current().lock:
        del run
        assert first in open_runs(), "whoever gives it up may hold a lock"
    logger.record_tabular("x", 1)
    logger.dump_tabular()
    assert first not in open_runs()
    beside.close()


@pytest.mark.usefixtures("table")
def test_runs_of_threads_that_have_ended_end_when_the_next_begins() -> None:
    main = rla_client.init("t")
    found: list[Any] = []

    def trial() -> None:
        run = rla_client.init("t")
        run.log({"x": 1}, step=1)
        found.append(run.run)

    for _ in range(3):
        thread = threading.Thread(target=trial)
        thread.start()
        thread.join(60)
    assert [one.outbox._closed for one in found] == [True, True, False]
    main.log({"x": 1}, step=1)
    last = rla_client.init("t")
    assert found[-1].outbox._closed
    assert main.run is not None
    assert len(spooled(main)) == 1
    last.close()
    main.close()


@pytest.mark.usefixtures("table")
def test_what_is_said_of_the_next_run_leaves_one_whose_handle_is_held() -> None:
    run = rla_client.init("t", config={"lr": 0.1})
    exp_manager.configure("next", {"LOG_USED": ["csv"]}, str(run.data_root))
    exp_manager.set_hyper_param(lr=9.9)
    exp_manager.run_id = "other"
    assert (exp_manager.task_table_name, exp_manager.hyper_param) == ("next", {"lr": 9.9})
    assert exp_manager.run is run.run, "until it is opened"
    run.add_hyper_param({"late": 1})
    exp_manager.log_files_gen()
    assert (exp_manager.task_table_name, exp_manager.hyper_param) == ("next", {"lr": 9.9})
    assert (run.task_table_name, run.hyper_param, run.run_id) == ("t", {"lr": 0.1, "late": 1}, None)
    exp_manager.close()
    assert (exp_manager.task_table_name, exp_manager.hyper_param) == ("t", {"lr": 0.1, "late": 1})
    run.close()


@pytest.mark.usefixtures("table")
def test_what_the_script_configures_is_opened_after_a_run_of_an_adapter(tmp_path: Path) -> None:
    ensure_run("adapter", {})
    exp_manager.close()
    exp_manager.configure("mine", {"LOG_USED": ["csv"]}, str(tmp_path / "data"))
    ensure_run("another", {"x": 1})
    assert (exp_manager.task_table_name, exp_manager.hyper_param) == ("mine", {"x": 1})
    exp_manager.close()


@pytest.mark.usefixtures("table")
def test_a_with_block_ends_its_run() -> None:
    with rla_client.init("t") as outer:
        with rla_client.init("t") as inner:
            assert exp_manager.run is inner.run
        rla_client.log({"x": 1}, step=1)
        assert [row["x"] for row in spooled(outer)] == [1]
    assert outer.run is inner.run is None


@pytest.mark.usefixtures("table")
def test_threads_do_not_mix() -> None:
    found: dict[int, list[dict[str, object]]] = {}
    others: dict[int, object] = {}
    barrier = threading.Barrier(4)

    def trial(number: int) -> None:
        run = rla_client.init("t", config={"number": number}, track=["number"])
        for step in range(1, 50):
            rla_client.time_step_holder.set_time(step)
            logger.record_tabular("a", number)
            barrier.wait(30)
            exp_manager.time_record("part")
            logger.record_tabular("b", number * step)
            exp_manager.time_record_end("part")
            logger.dump_tabular()
        exp_manager.add_custom_data("mine", number)
        exp_manager.save_checkpoint({"number": number})
        others[number] = exp_manager.hyper_param, exp_manager.custom_data["mine"], exp_manager.info
        found[number] = spooled(run)
        run.close()

    threads = [threading.Thread(target=trial, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(4):
        rows = [{name: row[name] for name in ("time-step", "a", "b")} for row in found[number]]
        assert rows == [{"time-step": s, "a": number, "b": number * s} for s in range(1, 50)]
        assert others[number] == ({"number": number}, [number], f"&number={number}")
    assert exp_manager.run is None


@pytest.mark.usefixtures("table")
def test_threads_that_open_as_rla_does() -> None:
    found: dict[int, object] = {}
    main = rla_client.init("t", config={"number": "main"})
    barrier = threading.Barrier(2)

    def trial(number: int) -> None:
        exp_manager.configure("t", {"LOG_USED": ["csv"]}, os.environ["RLA_DATA_ROOT"], code_root=".")
        exp_manager.set_hyper_param(number=number)
        barrier.wait(30)
        exp_manager.log_files_gen()
        barrier.wait(30)
        rla_client.log({"x": number}, step=number)
        found[number] = exp_manager.hyper_param, logger.get_current().last_row["x"]
        exp_manager.close()
        rla_client.log({"after": number}, step=100 + number)

    threads = [threading.Thread(target=trial, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: ({"number": number}, number) for number in range(2)}
    assert exp_manager.run is main.run
    assert {row["after"] for row in spooled(main)} == {0, 1}, "their own have ended: the script's is there"


@pytest.mark.usefixtures("table")
def test_pictures_go_to_the_run_of_their_thread(tmp_path: Path) -> None:
    main, other = rla_client.init("t"), rla_client.init("t")
    with main.active():
        first = ImgRecorder.save("img", np.zeros((4, 4, 3), np.uint8), add_timestamp=False)
    second = ImgRecorder.save("img", np.zeros((4, 4, 3), np.uint8), add_timestamp=False)
    assert str(first).startswith(str(main.results_dir))
    assert str(second).startswith(str(other.results_dir))


@pytest.mark.usefixtures("table")
def test_workers_join_the_run_of_the_process() -> None:
    main = rla_client.init("t")
    told = os.environ["RLA_RUN"]

    def trial() -> None:
        with rla_client.init("t"):
            assert os.environ["RLA_RUN"] == told

    thread = threading.Thread(target=trial)
    thread.start()
    thread.join(30)
    inner = rla_client.init("t")
    assert os.environ["RLA_RUN"] != told
    inner.close()
    assert os.environ["RLA_RUN"] == told
    main.close()
    assert "RLA_RUN" not in os.environ


@pytest.mark.usefixtures("table")
def test_a_handle_is_exp_manager_in_another_process() -> None:
    run = rla_client.init("t")
    assert pickle.loads(pickle.dumps(run)) is exp_manager


@pytest.mark.usefixtures("table")
def test_changed_parameters_are_noted() -> None:
    run = rla_client.init("t", config={"lr": 0.1, "seed": 1, "token": "secret1"})
    run.set_timestep(30)
    run.add_hyper_param({"lr": 0.01, "seed": 1, "new": 2, "token": "secret2"})
    (path,) = Path(str(run.log_dir)).glob("parameter.resumed-*.json")
    told = json.loads(path.read_text())
    assert told["changed"] == {"lr": [0.1, 0.01]}
    assert told["time_step"] == 30
    assert "secret" not in path.read_text()


@pytest.mark.usefixtures("table")
def test_the_same_run_again_goes_on_although_its_handle_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    first = rla_client.init("t", run_id="one", resume="allow")
    second = rla_client.init("t", run_id="one", resume="allow")
    assert first.run is None
    assert second.run is exp_manager.run is not None
    assert "still writes" not in capsys.readouterr().out
