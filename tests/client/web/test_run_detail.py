"""One run on the page: what it shows, what differs from another, tags, note, trash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import wait_until

from rla_client.contract.process.locks import try_lock
from rla_client.web.page_edits import MAX_NOTE
from rla_client.web.run_detail import MAX_DIFF_LINES, WARNINGS

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun

TABLE = "task"


def name(index: str) -> str:
    return f"0/{TABLE}/{index}"


@pytest.fixture
def server(root: Path, make_run: MakeRun, page_server: Callable[..., PageServer]) -> PageServer:
    make_run()
    return page_server(root)


@pytest.fixture
def index(root: Path) -> str:
    return make_index(0)


def make_index(number: int) -> str:
    return f"2026/11/21/09-30-{number:02}-123456_10.0.0.5_&lr=0.1"


def rewrite(root: Path, index: str, file: str, **changes: Any) -> None:
    path = root / "log" / TABLE / index / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


def test_overview(server: PageServer, index: str) -> None:
    found = server.ask("run", {"run": name(index)})
    assert (found["state"], found["live"], found["step"], found["host"]) == ("finished", False, 9, "box")
    assert ["lr", 0.1] in found["parameters"]
    assert ["return", 4.5] in found["metrics"]
    assert found["tracked"] == ["lr"]
    assert found["traceback"] == ""
    assert found["about"]["run_id"] == "run0"


def test_a_failed_run_tells_why(root: Path, make_run: MakeRun, server: PageServer) -> None:
    server.ask("runs")  # so the server has looked, and has not seen the run half written
    index = make_run(number=1, state="failed")
    rewrite(root, index, "run.json", reason="ValueError: <b>no</b>", exit_code=3)
    warnings = [f"[WARN] {n} : \x1b[31mw{n}\x1b[0m" for n in range(20)]
    text = "\n".join(
        [*warnings, "Traceback (most recent call last):", '  File "x.py"', "ValueError: <b>no</b>", ""]
    )
    (root / "log" / TABLE / index / "warn.txt").write_text(text)
    found = server.ask("run", {"run": name(index)})
    assert found["traceback"].endswith("ValueError: <b>no</b>")
    assert (found["about"]["reason"], found["about"]["exit_code"]) == ("ValueError: <b>no</b>", 3)
    assert found["warnings"] == [f"[WARN] {n} : w{n}" for n in range(20 - WARNINGS, 20)]


@pytest.mark.slow
def test_what_a_resume_changed(root: Path, server: PageServer, index: str) -> None:
    change = {"time_step": 5, "time": 1.0, "changed": {"lr": [0.1, 0.2]}}
    (root / "log" / TABLE / index / "parameter.resumed-1.json").write_text(json.dumps(change))
    found = server.ask("run", {"run": name(index)})["resumes"]
    assert found == [{"file": "parameter.resumed-1.json", **change}]


@pytest.mark.slow
def test_parents_and_children(root: Path, make_run: MakeRun, server: PageServer, index: str) -> None:
    fork, later, other = make_run(number=1), make_run(number=2), make_run(number=3)
    rewrite(root, other, "run.json", parent={"run": index, "table": TABLE, "time_step": 2})
    rewrite(root, fork, "run.json", parent={"run": index, "table": TABLE, "time_step": 5})
    rewrite(
        root,
        later,
        "run.json",
        parent={"run": fork, "table": TABLE, "time_step": 7, "rows": 3, "chain": True},
    )

    def children(of: str) -> list[tuple[str, bool]]:
        return [(one["path"], one["chain"]) for one in server.ask("run", {"run": name(of)})["children"]]

    # the list knows of them after its next look; what the files say is read at once
    wait_until(lambda: children(fork) == [(name(later), True)] and children(index) == [(name(other), False)])
    last = server.ask("run", {"run": name(later)})
    assert [(one["path"], one["chain"], one["step"]) for one in last["parents"]] == [
        (name(fork), True, 7),
        (name(index), False, 5),
    ]
    assert last["chain"] == 2


@pytest.mark.parametrize("parent", ["itself", "/etc", "../x", 5, "a/../../b"])
def test_a_parent_that_is_none_ends_the_list(root: Path, server: PageServer, index: str, parent: Any) -> None:
    told = {"run": index if parent == "itself" else parent, "table": TABLE, "chain": True}
    rewrite(root, index, "run.json", parent=told)
    assert server.ask("run", {"run": name(index)})["parents"] == []


def test_environment_and_diff(root: Path, server: PageServer, index: str) -> None:
    lines = "\n".join(f"+line {n}" for n in range(MAX_DIFF_LINES + 10))
    git = {"commit": "abc", "dirty": True, "diff": {"state": "complete", "text": lines}}
    rewrite(root, index, "environment.json", command=["python", "x.py"], git=git, packages={"a": "1"})
    found = server.ask("environment", {"run": name(index)})
    assert found["environment"]["command"] == ["python", "x.py"]
    assert found["git"] == {"commit": "abc", "dirty": True}
    assert (len(found["diff"]["lines"]), found["diff"]["count"]) == (MAX_DIFF_LINES, MAX_DIFF_LINES + 10)
    assert found["kinds"]["checkpoint"] == [9, 3, False]


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"git": 5}', '{"git": {"diff": 7}}', "[" * 100_000])
def test_broken_files_break_nothing(root: Path, server: PageServer, index: str, content: str) -> None:
    folder = root / "log" / TABLE / index
    for file in ("environment.json", "run.json", "note.json", "parameter.resumed-1.json"):
        (folder / file).write_text(content)
    (folder / "warn.txt").write_bytes(b"\xff[WARN]\n[WARN] \xff\x00\n")
    assert server.ask("environment", {"run": name(index)})["diff"]["count"] == 0
    assert server.ask("run", {"run": name(index)})["warnings"] == ["[WARN] \ufffd\ufffd"]


def test_pipes_in_the_place_of_files_hold_nobody_up(root: Path, server: PageServer, index: str) -> None:
    folder = root / "log" / TABLE / index
    for file in ("environment.json", "warn.txt", "run.json"):
        (folder / file).unlink(missing_ok=True)
        os.mkfifo(folder / file)
    assert server.ask("run", {"run": name(index)})["warnings"] == []  # or its deadline ends the wait
    assert server.ask("environment", {"run": name(index)})["environment"] == {}


@pytest.mark.slow
def test_differences(root: Path, make_run: MakeRun, server: PageServer, index: str) -> None:
    server.ask("run", {"run": name(index)})  # so the server has looked, and has not seen the second run
    other = make_run(number=1)
    found = server.ask("difference", {"run": name(index), "other": name(other)})
    assert found["sections"]["hyper-parameters"] == [["seed", 0, 1]]
    assert found["lines"][-3:] == ["-seed = 0", "+seed = 1", ""]

    def others() -> list[str]:
        return [path for path, _ in server.ask("others", {"run": name(index), "text": "LR=0.1"})]

    wait_until(lambda: others() == [name(other)], what="the list to have the new run")


def test_differences_read_no_links_and_no_large_files(
    root: Path, make_run: MakeRun, server: PageServer, index: str, tmp_path: Path
) -> None:
    other = make_run(number=1)
    (tmp_path / "secret").write_text("s3cret\n")
    folders = [root / "code" / TABLE / one for one in (index, other)]
    (folders[0] / "link.py").symlink_to(tmp_path / "secret")
    os.mkfifo(folders[1] / "pipe.py")
    for number, folder in enumerate(folders):
        (folder / "large.py").touch()
        os.truncate(folder / "large.py", (5 << 30) + number)
    found = server.ask("difference", {"run": name(index), "other": name(other)})
    assert "files differ: large.py" in found["lines"]
    assert "s3cret" not in json.dumps(found)


def test_no_code_and_archives(root: Path, make_run: MakeRun, server: PageServer, index: str) -> None:
    other = make_run(number=1)
    folder = root / "code" / TABLE / other
    (folder / "train.py").unlink()
    (folder / "launch_manifest.json").write_text("{}")
    found = server.ask("difference", {"run": name(index), "other": name(other)})
    assert (found["without"], found["archives"], found["lines"]) == ([name(other)], [name(other)], [])


def test_tags_and_note(root: Path, server: PageServer, index: str) -> None:
    asked = {"run": name(index), "add": ["good", "old"], "note": "<b>läuft</b>"}
    changed = {"tags": ["good", "old"], "note": "<b>läuft</b>", "display_name": ""}
    assert server.ask("note", asked) == changed
    server.ask("note", {"run": name(index), "remove": ["old"]})
    found = server.ask("run", {"run": name(index)})
    assert (found["tags"], found["note"]) == (["good"], "<b>läuft</b>")
    assert server.ask("note", {"run": name(index), "display_name": "mine"})["display_name"] == "mine"
    assert server.ask("run", {"run": name(index)})["display_name"] == "mine"


@pytest.mark.parametrize(
    "change",
    [
        {"add": ["a,b"]},
        {"add": [""]},
        {"add": 5},
        {"remove": [5]},
        {"note": 5},
        {"note": "x" * (MAX_NOTE + 1)},
    ],
)
def test_what_is_no_tag_or_note_is_refused(server: PageServer, index: str, change: dict[str, Any]) -> None:
    server.refused("note", {"run": name(index), **change})


def test_a_change_waits_for_nobody(root: Path, server: PageServer, index: str) -> None:
    (root / ".rla").mkdir()
    lock = os.open(root / ".rla" / "lock", os.O_RDWR | os.O_CREAT)
    assert try_lock(lock)
    try:
        assert "another command" in server.refused("note", {"run": name(index), "note": "x"})
    finally:
        os.close(lock)


def test_trash_and_undo(root: Path, server: PageServer, index: str) -> None:
    about = server.ask("trash", {"run": name(index)})
    assert "checkpoint" in about["items"]
    assert about["bytes"] > 0
    assert (root / "log" / TABLE / index).is_dir()
    gone = server.ask("trash", {"run": name(index), "sure": True})
    assert not (root / "log" / TABLE / index).exists()
    assert server.ask("runs")["number"] == []
    server.refused("run", {"run": name(index)})
    server.ask("restore", gone)
    assert server.ask("run", {"run": name(index)})["step"] == 9
    assert "no entry" in server.refused("restore", gone)


def test_a_live_run_is_not_moved(root: Path, make_run: MakeRun, server: PageServer) -> None:
    index = make_run(number=1, state="running")
    for sure in (False, True):
        assert "being written" in server.refused("trash", {"run": name(index), "sure": sure})
    assert (root / "log" / TABLE / index).is_dir()


@pytest.mark.parametrize(
    "asked", [{}, {"place": 5}, {"place": -1}, {"place": 0, "entry": "../x"}, {"place": True}]
)
def test_what_the_trash_has_not_is_refused(server: PageServer, asked: dict[str, Any]) -> None:
    server.refused("restore", asked)
