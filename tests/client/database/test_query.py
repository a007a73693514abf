from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from support.legacy_database import LEGACY_TABLE, entries

from rla_client.contract.errors import NoSuchTableError
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    CODE,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TMP_DATA,
)
from rla_client.database import experiment_data_query, extract_valid_index, single_experiment_query
from rla_client.manager import ExpManager

KINDS = (LOG, ARCHIVE_TESTER, OTHER_RESULTS, TMP_DATA, HYPARAMETER, CHECKPOINT)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_keyed_by_date_in_both_spellings(
    root: Path, make_run: Callable[..., str], kind: str
) -> None:
    first, second = make_run(number=1), make_run(number=2, spaces=True)
    found = experiment_data_query(str(root), "task", "2026/*", kind)
    assert list(found) == [first[:26], second[:26]]
    assert [os.path.relpath(result.dirname, root) for result in found.values()] == [
        f"{kind}/task/{first}",
        f"{kind}/task/{second}",
    ]


def test_what_the_results_hold(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run(params={"lr": 0.1, "net": {"size": 3}})
    date = index[:26]
    assert single_experiment_query(str(root), "task", date, CHECKPOINT).all_ckps == [
        "checkpoint_5.pt",
        "checkpoint_10.pt",
        "checkpoint_100.pt",
    ]
    assert single_experiment_query(str(root), "task", date, HYPARAMETER).hyper_param.net.size == 3
    figures = single_experiment_query(str(root), "task", date, OTHER_RESULTS)
    assert [os.path.basename(path) for path in figures.location] == ["5-figure.png"]
    assert figures.ctime == [os.path.getmtime(figures.location[0])]
    manager = single_experiment_query(str(root), "task", date, ARCHIVE_TESTER).exp_manager
    assert manager.hyper_param["net"]["size"] == 3
    assert manager.record_date == datetime(2026, 11, 21, 9, 30, 0, 123456)  # noqa: DTZ001


def test_an_archive_gives_a_manager_that_can_do_what_load_tester_s_can(
    root: Path, make_run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = make_run(params={"lr": 0.1})
    monkeypatch.chdir(root.parent)
    for asked in (str(root), root.name):
        manager = single_experiment_query(asked, "task", index[:26], ARCHIVE_TESTER).exp_manager
        assert isinstance(manager, ExpManager)
        loaded = ExpManager.load_tester(index[:26], "task", root)
        for name in ("log_dir", "checkpoint_dir", "results_dir", "tmp_data_dir", "code_dir", "pkl_file"):
            assert getattr(manager, name) == getattr(loaded, name), name
        assert manager.data_root == str(root)
        assert os.path.exists(str(manager.pkl_file))
        assert manager.record_date is not None
        assert manager.log_name_formatter(f"{root}/log/task", manager.record_date) + "/" == manager.log_dir
    manager.update_log_files_location("elsewhere")
    assert str(manager.log_dir).endswith(f"elsewhere/log/task/{index}/")


def test_bad_questions_are_answered_clearly(root: Path, make_run: Callable[..., str]) -> None:
    make_run(number=1)
    make_run(number=2)
    with pytest.raises(NotImplementedError, match="code"):
        experiment_data_query(str(root), "task", "*", CODE)
    with pytest.raises(NoSuchTableError, match=r"'nope'\nhint: there are: task"):
        experiment_data_query(str(root), "nope", "*", LOG)
    with pytest.raises(AssertionError, match="2 match"):
        single_experiment_query(str(root), "task", "2026/11/21/09-30", LOG)
    with pytest.raises(AssertionError, match="0 match"):
        single_experiment_query(str(root), "task", "1999", LOG)
    with pytest.warns(UserWarning, match="matches '1999"):
        assert experiment_data_query(str(root), "task", "1999*", LOG) == {}


def test_a_broken_file_is_warned_about_and_the_rest_is_given(
    root: Path, make_run: Callable[..., str]
) -> None:
    make_run(number=1)
    index = make_run(number=2)
    (root / "archive_tester" / "task" / f"{index}.json").write_text("{")
    with pytest.warns(UserWarning, match="09-30-02"):
        assert len(experiment_data_query(str(root), "task", "*", ARCHIVE_TESTER)) == 1


def test_extract_valid_index() -> None:
    assert (
        extract_valid_index("/x/log/t/2022/06/22/16-53-36-896124 1.2.3.4 &a=1/y")
        == "2022/06/22/16-53-36-896124"
    )
    assert extract_valid_index("2022/06/22") is None


@pytest.mark.parametrize("kind", [LOG, ARCHIVE_TESTER, OTHER_RESULTS, CHECKPOINT])
def test_the_originals_data(legacy: Path, kind: str) -> None:
    found = experiment_data_query(str(legacy), LEGACY_TABLE, "2022/0[67]/*", kind)
    file = "/progress.csv" if kind == LOG else ""
    assert len(found) == len(entries(legacy, kind, f"{LEGACY_TABLE}/2022/0[67]/*/*{file}")) > 3
    assert None not in found
    if kind == ARCHIVE_TESTER:
        assert {result.exp_manager.hyper_param.input_size for result in found.values()} == {16}
        assert all(result.exp_manager.record_date.year == 2022 for result in found.values())


def test_managers_of_the_originals_archives(legacy: Path) -> None:
    found = experiment_data_query(str(legacy), LEGACY_TABLE, "*", ARCHIVE_TESTER)
    assert found
    folders = 0
    for date, result in found.items():
        manager = result.exp_manager
        assert isinstance(manager, ExpManager)
        assert manager.pkl_file == f"{result.dirname}.pkl"
        assert manager.get_version_num() == (None if " " in os.path.basename(result.dirname) else "v1")
        table = f"{legacy}/archive_tester/{LEGACY_TABLE}"
        assert manager.record_date is not None
        assert manager.log_name_formatter(table, manager.record_date) == result.dirname
        assert manager.hyper_param_record
        assert set(manager.custom_data) == set(ExpManager.load_tester(date, LEGACY_TABLE, legacy).custom_data)
        folders += os.path.isdir(str(manager.checkpoint_dir))
    assert folders


def test_an_archive_cannot_replace_what_a_manager_has(root: Path, make_run: Callable[..., str]) -> None:
    index = make_run()
    path = root / "archive_tester" / "task" / f"{index}.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "load_checkpoint": 1, "_item": 2, "__class__": 3, "mine": 4}))
    manager = single_experiment_query(str(root), "task", index[:26], ARCHIVE_TESTER).exp_manager
    assert (type(manager), manager.mine) == (ExpManager, 4)
    assert callable(manager.load_checkpoint)
    assert os.path.isdir(str(manager.log_dir))
