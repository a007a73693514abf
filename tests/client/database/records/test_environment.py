"""What environment.json tells of a run, in filters, tables and `rla diff`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.written_runs import MakeRun

from rla_client.database import open as open_database
from rla_client.database.records.environment import MAX_TOLD_BYTES, compared, read_told, told_of

OLD, NEW = "1a2b3c4d" * 5, "9f8e7d6c" * 5


def environment(commit: str, **further: object) -> dict[str, object]:
    diff = {"text": "a\n", "state": "complete"}
    git = {"root": "/p", "commit": commit, "branch": "main", "dirty": True, "diff": diff}
    found = {"format_version": 1, "command": ["python", commit], "host": {"cpus": 8}, "git": git}
    return {**found, "packages": {"torch": "2.1"}, "environment": {"RLA_RUN_ID": commit}, **further}


@pytest.fixture(name="two")
def two_fixture(root: Path, make_run: MakeRun) -> list[str]:
    """Two runs that differ in their commits, and one that was imported."""
    indices = [make_run(number=number, params={"lr": 0.1}) for number in range(3)]
    contents = [environment(OLD), environment(NEW), {"group": "baseline", "job_type": "eval", "summary": {}}]
    for index, content in zip(indices, contents, strict=True):
        (root / "log" / "task" / index / "environment.json").write_text(json.dumps(content))
    return indices


def test_what_is_told_and_what_is_compared() -> None:
    assert told_of(environment(OLD, group="g")) == {"commit": OLD, "branch": "main", "group": "g"}
    assert told_of({"git": None}) == {}
    found = compared(environment(OLD))
    digest = found.pop("git.uncommitted")
    assert str(digest).startswith("1 lines, sha256 ")
    assert found == {
        "host.cpus": 8, "packages.torch": "2.1", "git.root": "/p", "git.commit": OLD, "git.branch": "main",
        "git.dirty": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "places"),
    [
        (f"commit == '{OLD}'", [0]),
        (f"commit == '{OLD[:8]}'", [0]),
        (f"'{NEW[:9]}' == commit", [1]),
        (f"commit != '{OLD}'", [1, 2]),
        ("commit is None", [2]),
        ("branch == 'main'", [0, 1]),
        ("group == 'baseline' and job_type == 'eval'", [2]),
        ("commit == '0123456'", []),
        (f"commit != '{OLD[:8]}'", [1, 2]),
        (f"'{NEW[:9]}' != commit", [0, 2]),
        ("commit != '0123456'", [0, 1, 2]),
        (f"commit in ['{OLD[:7]}', '{NEW}']", [0, 1]),
        (f"commit in ('0123456', '{NEW[:12]}', None)", [1, 2]),
        (f"commit not in ['{OLD[:7]}', '0123456']", [1, 2]),
        (f"not commit in ['{OLD[:7]}', '{NEW[:7]}']", [2]),
    ],
)
def test_filters_know_commit_and_group(root: Path, two: list[str], where: str, places: list[int]) -> None:
    found = [run.index for run in open_database(root).records(where=where)]
    assert found == [two[place] for place in places]


def test_a_parameter_of_the_same_name_comes_first(root: Path, make_run: MakeRun) -> None:
    index = make_run(params={"group": "mine"})
    (root / "log" / "task" / index / "environment.json").write_text('{"group": "theirs"}')
    assert len(open_database(root).records(where="group == 'mine'")) == 1
    assert open_database(root).records(where="group == 'theirs'") == []


def test_a_commit_that_comes_later_is_seen(root: Path, make_run: MakeRun) -> None:
    index = make_run()
    database = open_database(root)
    assert database.records(where="commit is None")
    (root / "log" / "task" / index / "environment.json").write_text(json.dumps(environment(OLD)))
    assert database.records(where=f"commit == '{OLD}'")


def test_show_and_diff_tell_the_commits(root: Path, two: list[str], rla: Callable[..., Any]) -> None:
    shown = rla("show", two[0], "-d", str(root)).stdout
    assert ["commit", OLD] in [line.split() for line in shown.splitlines()]
    assert json.loads(rla("show", two[0], "-d", str(root), "--json").stdout)["commit"] == OLD
    assert "baseline" in rla("show", two[2], "-d", str(root)).stdout
    told = rla("diff", two[0], two[1], "-d", str(root)).stdout
    assert "environment: equal" not in told
    assert "git.commit" in told
    found = json.loads(rla("diff", two[0], two[1], "-d", str(root), "--json").stdout)
    assert found["environment"] == {"git.commit": [OLD, NEW]}


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
def test_what_is_told_is_cut_out_of_any_spelling(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "environment.json"
    traps = {
        "commit": "no",
        "group": 'a\n  "branch": "no",\n',
        "deep": {"git": {"commit": "no"}, "branch": "no"},
    }
    for further in ({}, {"group": 'é "x"\n', "job_type": "eval"}, {"branch": "top", "group": ""}):
        content = {"packages": traps, **environment(OLD, environment=traps), **further}
        for ascii_alone in (True, False):
            path.write_text(json.dumps(content, indent=indent, ensure_ascii=ascii_alone), encoding="utf-8")
            assert read_told(path) == told_of(content)


def test_a_long_diff_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    content = environment(OLD, environment={"A": "b"})
    content |= {"git": content.pop("git")}
    content["git"]["diff"] = {"text": '+ "line"\n' * 2 * MAX_TOLD_BYTES}  # type: ignore[index]
    path.write_text(json.dumps(content, indent=2))
    assert path.stat().st_size > 4 << 20
    assert read_told(path) == {"commit": OLD, "branch": "main"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "{",
        '{\n  "git": {\n    "commit": "ab',
        "[" * 100_000,
        '{\n "group": ' + "[" * 4000 + "\n",
        "x" * (5 << 20),
    ],
)
def test_a_broken_one_is_no_problem_of_its_row(root: Path, make_run: MakeRun, content: str) -> None:
    index = make_run()
    (root / "log" / "task" / index / "environment.json").write_text(content)
    (record,) = open_database(root).records()
    assert (record.problems, record.told.get("commit")) == ((), None)
