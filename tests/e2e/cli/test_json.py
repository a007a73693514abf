"""`--json`: what commands did, for scripts. Answers are the whole of stdout; the rest goes to stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from rla_client.cli.app import make_app

Rla = Callable[..., Any]
MakeRun = Callable[..., str]
WITHOUT = {
    "rla web", "rla top", "rla mcp",  # they serve somebody
    "rla resume",  # prints what the program prints
    "rla push", "rla pull", "rla verify",  # pass everything on; see tests of `rla-agent transfer`
}  # fmt: skip


def commands(group: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Each command with its options."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", {option for parameter in command.params for option in parameter.opts}


def test_commands_that_print_take_it() -> None:
    app: typer.Typer = make_app()
    lacking = {name for name, options in commands(get_command(app), "rla") if "--json" not in options}
    assert lacking == WITHOUT


@pytest.mark.slow
def test_changes(rla: Rla, root: Path, make_run: MakeRun) -> None:
    where = ("--json", "-d", str(root))
    first, second = make_run(number=1), make_run(number=2)

    def ask(*words: str, code: int = 0) -> Any:
        done = rla(*words, *where)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    assert ask("tag", "09-30-01", "a", "b") == [{"run": first, "table": "task", "tags": ["a", "b"]}]
    assert ask("note", "09-30-01", "good\nbad") == [{"run": first, "table": "task", "note": "good\nbad"}]
    assert ask("note", "09-30-02") == [{"run": second, "table": "task", "note": ""}]
    assert ask("tail", "09-30-01") == {
        "run": first, "table": "task", "file": "log.txt", "lines": ["first line", "last line"],
    }  # fmt: skip
    runs = [{"run": first, "table": "task"}]
    assert ask("archive", "09-30-01", "--yes") == {"runs": runs, "items": 7, "already_there": 0, "to": "arc/"}
    assert ask("migrate", "other", "-r", "09-30-01", "--kinds", "log", "--yes") == {
        "runs": runs, "items": 1, "already_there": 0, "to": "table other",
    }  # fmt: skip
    removed = ask("rm", "task/2026/11/21/09-30-01", "--yes")
    assert (removed["runs"], removed["items"]) == (runs, 7)
    assert removed["size"] > 0
    assert removed["entry"] == ask("trash", "list")[0]["entry"]
    assert ask("trash", "restore", removed["entry"])["paths"] == 7
    assert ask("rm", "--small", "-1", "--yes") == {"runs": [], "items": 0, "size": 0, "entry": None}
    assert ask("rm", "task/2026/11/21/09-30-02", "--yes")["runs"] == [{"run": second, "table": "task"}]
    assert ask("trash", "empty", "--yes")["entries"] == 1
    assert ask("trash", "empty") == {"entries": 0, "size": 0}
    refused = rla("rm", "task/2026/11/21/09-30-01", *where)
    assert (refused.returncode, refused.stdout) == (1, "")


@pytest.mark.slow
def test_what_is_taken_out(rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    make_run(number=1), make_run(number=2)
    where = ("--json", "-d", str(root))
    picture, rows = tmp_path / "a.png", tmp_path / "a.csv"
    told = json.loads(rla("plot", "return", "-o", str(picture), *where).stdout)
    assert {name: told[name] for name in ("file", "metrics", "runs", "curves")} == {
        "file": str(picture), "metrics": ["return"], "runs": 2, "curves": 1,
    }  # fmt: skip
    page = tmp_path / "a.html"
    told = json.loads(rla("report", str(page), *where).stdout)
    assert told == {
        "file": str(page), "bytes": page.stat().st_size, "runs": 2, "left_out": 0, "metrics": 1,
        "metrics_left_out": 0, "pictures": 2, "cut": False,
    }  # fmt: skip
    told = json.loads(rla("export", str(rows), *where).stdout)
    assert told == {"file": str(rows), "rows": 2, "runs": 2}
    told = json.loads(rla("import", "csv", str(rows), *where).stdout)
    assert (told["tables"], told["runs"]) == ({"imported": 1}, 1)
    fresh = ("--json", "-d", str(tmp_path / "fresh"))  # the first thing done by who comes from elsewhere
    assert json.loads(rla("import", "csv", str(rows), *fresh).stdout)["runs"] == 1
    assert "is not a folder" in rla("import", "csv", str(rows), "-d", str(tmp_path / "ty" / "po")).stderr
    told = json.loads(rla("init", str(tmp_path), "--json").stdout)
    assert (tmp_path / "rla_config.yaml").is_file()
    assert told["done"][0] == f"wrote {tmp_path / 'rla_config.yaml'}"
