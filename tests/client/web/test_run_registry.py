"""Numbers and versions of runs, without a server."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from support.page_runs import write_page_run, write_sweep

from rla_client.contract.errors import ArgumentError, DatabaseError, NoSuchRunError
from rla_client.web import run_registry as run_registry_module
from rla_client.web.run_registry import Site, live, path_of


def test_a_run_keeps_its_number_and_a_change_gives_it_a_version(root: Path) -> None:
    write_sweep(root)
    site = Site([root])
    version = site.look()
    before = {path_of(entry): entry.number for entry in site.entries()}
    assert sorted(before.values()) == list(range(6))
    write_page_run(root, 40)
    assert site.look() == version, "looks are LOOK_S apart"
    assert site.look_now() == version + 1
    after = {path_of(entry): entry.number for entry in site.entries()}
    assert before.items() <= after.items()
    assert [entry.number for entry in site.entries(version)] == [6]
    assert site.look_now() == version + 1, "nothing changed"


def test_what_is_gone_is_there_only_for_who_knew_it(root: Path) -> None:
    index = write_page_run(root, 0)
    write_page_run(root, 1)
    site = Site([root])
    version = site.look()
    number = next(entry.number for entry in site.entries() if entry.record.index == index)
    for kind in ("log", "hyperparameter"):
        shutil.rmtree(root / kind / "task" / index)
    site.look_now()
    assert [(entry.number, entry.gone) for entry in site.entries(version)] == [(number, True)]
    assert number not in [entry.number for entry in site.entries()]
    assert site.chosen([0, 1]) == site.entries()
    assert site.chosen([number]) == []
    with pytest.raises(NoSuchRunError):
        site.find(f"0/task/{index}")


def test_numbers_that_no_run_has_choose_none(root: Path) -> None:
    write_sweep(root)
    site = Site([root])
    site.look()
    assert site.chosen([-1, 6, 10**30]) == []


@pytest.mark.parametrize("numbers", [None, 0, "01", ["0"], {"0": 1}, [0.5], [None]])
def test_what_is_no_list_of_numbers(root: Path, numbers: object) -> None:
    write_sweep(root)
    site = Site([root])
    site.look()
    with pytest.raises(ArgumentError):
        site.chosen(numbers)


def test_links_name_a_run_for_good(root: Path, tmp_path: Path) -> None:
    write_sweep(root)
    write_page_run(tmp_path / "two", 0)
    site = Site([root, tmp_path / "two"])
    site.look()
    for entry in site.entries():
        assert site.find(path_of(entry)) == entry
        assert site.database(entry).data_root == [root, tmp_path / "two"][entry.place]
        assert site.run(entry).index == entry.record.index
    assert Site([root, tmp_path / "two"]).find(path_of(site.entries()[0])).record == site.entries()[0].record


@pytest.mark.parametrize(
    "path",
    [
        "",
        "0",
        "0/",
        "0/task",
        "9/task/2026/11/21/x",
        "-1/task/2026/11/21/x",
        "x/task/2026/11/21/x",
        "99999/task/2026/11/21/x",
        "²/task/2026/11/21/x",
        "0/../../etc/2026/11/21/passwd",
        "0//etc/passwd",
        "0/task/../../../../../etc/passwd",
        "0/task/2026/11/21/\0",
        "0/task/2026/11/21/" + "x" * 5000,
    ],
)
def test_a_path_that_names_no_run(root: Path, path: str) -> None:
    write_sweep(root)
    with pytest.raises(DatabaseError):
        Site([root]).find(path)


@pytest.mark.slow
def test_looks_from_many_threads_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_registry_module, "LOOK_S", 0.0)
    monkeypatch.setattr(run_registry_module, "SHARE", 1e9)
    write_sweep(root)
    site = Site([root])
    errors: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(20):
                site.look(wait=True)
                numbers = [entry.number for entry in site.entries()]
                assert numbers == sorted(set(numbers))
        except BaseException as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(10, 20):
        write_page_run(root, number)
    for thread in threads:
        thread.join()
    site.look_now()
    assert errors == []
    assert [entry.number for entry in site.entries()] == list(range(16))


def test_which_may_get_rows(root: Path) -> None:
    write_page_run(root, 0, state="running")
    write_page_run(root, 1, state="finished")
    write_page_run(root, 2, state="failed")
    site = Site([root])
    site.look()
    assert [entry.state for entry in live(site.entries())] == ["running"]


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError):
        Site([tmp_path / "none"]).look()
