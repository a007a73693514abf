"""Loading earlier runs: argument orders, moved databases, runs of the original."""

from __future__ import annotations

import os
from collections import deque
from datetime import datetime
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError, NotConfiguredError, UntrustedCheckpointError
from rla_client.loader import (
    ExperimentLoader,
    _in_order,
    _last_clock,
    _loader_of,
    _overwrite,
    exp_loader,
    fork_log_file_fn,
)
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.item import create_item
from rla_client.run.parameters.parameter_file import parameter_file, write_parameters
from rla_client.run.resume.find_run import RunNotFoundError, find_item, log_file_finder
from rla_client.run.state.custom_data import Pickled, open_own

DATE = "2022/11/24/18-46-30-917022"


def test_both_argument_orders_are_told_apart_by_the_date() -> None:
    assert _in_order("table", DATE, "root") == ("root", "table", DATE)
    assert _in_order("root", "table", DATE) == ("root", "table", DATE)
    with pytest.raises(ArgumentError, match="record date"):
        _in_order("a", "b", "c")


def test_the_run_may_be_named_by_keywords_of_either_spelling() -> None:
    for others in ({"task_table_name": "t", "data_root": "r"}, {"task_table_name": "t"}):
        loader = _loader_of(None, DATE, None if "data_root" in others else "r", others)
        assert (loader.data_root, loader.task_name, loader.load_date) == ("r", "t", DATE)
    with pytest.raises(TypeError, match="date"):
        _loader_of("t", None, "r", {"date": DATE})


def test_a_loader_made_at_import_sees_what_is_set_later(monkeypatch: pytest.MonkeyPatch) -> None:
    valid = [exp_loader.is_valid_config]
    monkeypatch.setattr(exp_manager, "hyper_param", {"loaded_task_name": "t", "loaded_date": DATE})
    monkeypatch.setattr(exp_manager, "data_root", "r")
    valid.append(exp_loader.is_valid_config)
    assert valid == [False, True]
    loader = ExperimentLoader()
    loader.config("other", DATE)
    assert (loader.task_name, loader.data_root) == ("other", "r")


def test_dotted_names_overwrite_one_entry() -> None:
    target = {"opt": {"lr": 1, "eps": 2}, "seed": 3}
    _overwrite(target, {"opt": {"lr": 9}, "seed": 4}, "opt.lr")
    assert target == {"opt": {"lr": 9, "eps": 2}, "seed": 3}
    with pytest.raises(ArgumentError, match="lack"):
        _overwrite(target, {"opt": {}}, "opt.momentum")


def test_without_a_run_a_fresh_start() -> None:
    loader = ExperimentLoader()
    assert not loader.is_valid_config
    assert loader.load_from_record_date() == (0, {}, {})
    loader.fork_log_files()


def test_a_fork_is_called_as_the_originals_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"log/t/{DATE}_noip_&").mkdir(parents=True)
    forked: list[str | None] = []
    monkeypatch.setattr(exp_manager, "log_file_copy", lambda loaded: forked.append(loaded.log_dir))
    monkeypatch.setattr(exp_manager, "hyper_param", {"lr": 1})
    loader = ExperimentLoader()
    loader.config("t", DATE, tmp_path)
    for order in (("t", DATE, str(tmp_path)), (str(tmp_path), "t", DATE)):
        fork_log_file_fn(*order, ["lr"], True)
        fork_log_file_fn(*order, hp_to_overwrite=["lr"], sync_timestep=True, sync_hyper_param=True)
        fork_log_file_fn(*order, None, False, True)
    loader.fork_log_files(["lr"], True)
    loader.fork_log_files(hp_to_overwrite=["other"], sync_timestep=False)
    assert forked == [f"{tmp_path}/log/t/{DATE}_noip_&/"] * 8
    for wrong in (True, "lr"):
        with pytest.raises(ArgumentError, match="list of names"):
            loader.fork_log_files(wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("fresh_manager")
@pytest.mark.parametrize("mode", ["online", "disabled"])
def test_a_fork_carries_the_custom_data_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    for kind in ("log", "archive_tester"):
        (tmp_path / f"old/{kind}/t/{DATE[:10]}").mkdir(parents=True)
    (tmp_path / f"old/log/t/{DATE}_noip_&").mkdir()
    source = ExpManager.load_tester(DATE, "t", tmp_path / "old")
    date = datetime(2026, 11, 21)  # noqa: DTZ001
    elsewhere = open_own({"object": Pickled(b"")}, "it was not written by this run")
    source._data.custom.take({"returns": deque([1.0, 2.0], maxlen=2), "own": 1, "date": date} | elsewhere)
    monkeypatch.setenv("RLA_MODE", mode)
    exp_manager.configure("t", {"LOG_USED": ["csv"]}, tmp_path / "data", code_root=tmp_path / "code")
    exp_manager.log_files_gen()
    exp_manager.add_custom_data("own", 2, int)
    exp_manager.log_file_copy(source)
    exp_manager.add_custom_data("returns", 3.0, dtype=deque, max_len=2)
    assert exp_manager.custom_data == {"returns": deque([2.0, 3.0], maxlen=2), "own": 2, "date": date}
    assert list(source.custom_data["returns"]) == [1.0, 2.0], "a copy"
    if mode == "online":
        assert exp_manager.record_date is not None
        own = exp_manager.record_date.strftime("%Y/%m/%d/%H-%M-%S-%f")
        again = ExpManager.load_tester(own, "t", tmp_path / "data")
        assert again.get_custom_data("date", trust=True) == date, "it is stored"
        assert again.custom_data == {"returns": deque([1.0, 2.0], maxlen=2), "own": 2, "date": date}


@pytest.mark.usefixtures("fresh_manager")
def test_a_loaded_run_knows_its_table_and_configuration(tmp_path: Path) -> None:
    path = tmp_path / "rla_config.yaml"
    path.write_text(
        "DL_FRAMEWORK: torch\nAGENT: {hide_secrets: false, autostart: false}\n"
        "REMOTE_SETTING: {ftp_server: box, username: ada, password: not-to-be-seen}\n"
    )
    exp_manager.configure("t", path, tmp_path / "data", code_root=tmp_path / "code")
    exp_manager.set_hyper_param(lr=0.1)
    exp_manager.add_record_param(["lr"])
    exp_manager.log_files_gen()
    exp_manager.close()
    assert exp_manager.record_date is not None
    date = exp_manager.record_date.strftime("%Y/%m/%d/%H-%M-%S-%f")
    loaded = ExpManager.load_tester(date, "t", tmp_path / "data")
    assert loaded.get_task_table_name() == "t"
    assert loaded.private_config == {
        "DL_FRAMEWORK": "torch",
        "REMOTE_SETTING": {"ftp_server": "box", "username": "ada", "password": "<hidden>"},
    }
    assert "not-to-be-seen" not in Path(str(loaded.pkl_file)).read_text()
    loaded.hyper_param_record = ["lr=0.5"]
    assert loaded.auto_parse_info() == "lr=0.5"
    with pytest.raises(NotConfiguredError):
        ExpManager().get_task_table_name()


def test_an_unknown_date_names_the_neighbours(tmp_path: Path) -> None:
    (tmp_path / "log/t/2026/01/02/03-04-05-000006_noip_&").mkdir(parents=True)
    with pytest.raises(RunNotFoundError, match="2026/01/02/03-04-05-000006"):
        find_item(tmp_path, "t", "2026/01/02/00-00-00-000000")
    item = find_item(tmp_path, "t", "2026/01/02/03-04-05-000006")
    assert item.folder("log").endswith("03-04-05-000006_noip_&/")
    folder, name = log_file_finder("2026/01/02/03-04-05-000006", "t", str(tmp_path / "log"))
    assert (folder, name) == (str(tmp_path / "log/t/2026/01/02"), "03-04-05-000006_noip_&")


def test_the_clock_of_a_run_is_that_of_its_last_checkpoint_else_of_its_last_row(tmp_path: Path) -> None:
    """Databases of the original have no run.json, and some no custom data."""
    for kind in ("log", "checkpoint"):
        (tmp_path / f"{kind}/t/2026/01/02/03-04-05-000006_noip_&").mkdir(parents=True)
    loaded = ExpManager.load_tester("2026/01/02/03-04-05-000006", "t", tmp_path)
    assert _last_clock(loaded) == 0
    loaded._data.run_file = {"time_step": 70}
    assert _last_clock(loaded) == 70
    for name in ("checkpoint-20.pt", "checkpoint_9.pt"):
        (Path(loaded.folder_of("checkpoint")) / name).touch()
    assert _last_clock(loaded) == 20
    loaded.add_custom_data("time-step", 60, int)
    assert _last_clock(loaded) == 60


def test_archives_of_the_original_load(legacy_source: Path) -> None:
    found = 0
    for path in sorted(legacy_source.glob("archive_tester/*/*/*/*/*.pkl")):
        table = path.relative_to(legacy_source / "archive_tester").parts[0]
        index = "/".join(path.with_suffix("").parts[-4:])
        loaded = ExpManager.load_tester(index, table, legacy_source)
        assert loaded.hyper_param, path
        assert loaded.data_root == str(legacy_source)
        found += 1
    assert found


def test_the_marker_of_a_secret_never_takes_the_place_of_the_current_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    item = create_item(str(tmp_path), "t", "", "noip")
    stored = {
        "api_key": "<hidden>",
        "lr": 1,
        "mail": {"user": "a", "password": "<hidden>"},
        "token": "<hidden>",
    }
    write_parameters(item, *parameter_file(stored))
    own = {"api_key": "own-key", "lr": 2, "mail": {"password": "own-password"}}
    monkeypatch.setattr(exp_manager, "hyper_param", own)
    loader = ExperimentLoader()
    loader.config("t", item.index.record_date, tmp_path)

    merged = vars(loader.import_hyper_parameters())

    assert merged["api_key"] == "own-key"
    assert (merged["lr"], merged["mail"]) == (1, {"user": "a", "password": "own-password"})
    assert "token" not in merged
    assert "not stored because they are secret: token" in capsys.readouterr().out
    assert exp_manager.hyper_param is own


class Evil:
    """Pickles as a call that leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_of_another_run_runs_nothing_unless_it_is_trusted(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    marker = tmp_path / "marker"
    item = tmp_path / f"checkpoint/t/{DATE}_noip_&"
    item.mkdir(parents=True)
    torch.save({"w": torch.ones(2)}, item / "checkpoint-1.pt")
    torch.save({"w": Evil(marker)}, item / "checkpoint-2.pt")
    loader = ExperimentLoader()
    loader.config("t", DATE, tmp_path)
    assert torch.equal(loader.load_from_record_date(ckp_index=1)[1]["w"], torch.ones(2))
    with pytest.raises(UntrustedCheckpointError, match=r"checkpoint-2.pt.*posix.mkdir.*trust=True"):
        loader.load_from_record_date()
    with pytest.raises(UntrustedCheckpointError):
        loader.load().load_checkpoint()
    assert not marker.exists()
    loader.load_from_record_date(trust=True)
    marker.rmdir()
    loader.load().load_checkpoint(2, trust=True)
    marker.rmdir()
    loader.config("t", DATE, tmp_path, trust=True)
    loader.load_from_record_date()
    assert marker.exists()
