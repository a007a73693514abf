"""`rla mcp` as an assistant meets it: the official client over stdin and stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.written_runs import REPOSITORY, run_rla

pytest.importorskip("mcp", reason="needs the extra mcp")
MakeRun = Callable[..., str]
TOOLS = ["overview", "runs", "compare", "run", "diff", "curves", "log", "samples", "sql"]


def ask(root: Path, calls: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Any, list[tuple[bool, str]]]:
    """What the server says of itself, and its answers: (whether it is an error, text)."""
    import anyio
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.types import TextContent

    names = ("PYTHONPATH", "RLA_STATE_DIR", "PATH", "HOME")
    environment = {
        "PYTHONPATH": str(REPOSITORY),
        **{one: os.environ[one] for one in names if one in os.environ},
    }
    words = ["-m", "rla_client.cli.app", "mcp", "-d", str(root)]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def talk() -> tuple[Any, list[tuple[bool, str]]]:
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            answers = [await client.call_tool(name, given) for name, given in calls]
            told = []
            for one in answers:
                (part,) = one.content
                assert isinstance(part, TextContent)
                told.append((bool(one.is_error), part.text))
            return tools, told

    return anyio.run(talk)


@pytest.mark.slow
def test_an_assistant_asks(root: Path, make_run: MakeRun) -> None:
    """Every tool, over runs with hostile names: no answer breaks a line, and nothing is changed."""
    evil = "x\ny\x1b[2J\u202e"
    for number in range(4):
        lr = (0.1, 0.2)[number % 2]
        params = {"lr": lr, "seed": number // 2, evil: evil}
        make_run(number=number, table="a täble", info=f"&lr={lr}&cmd=$(rm -rf x);`id`", params=params)
    before = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    tools, answers = ask(
        root,
        [
            ("overview", {}),
            ("runs", {"columns": ["run", evil]}),
            ("compare", {"by": ["lr", evil]}),
            ("run", {"run": "@last"}),
            ("diff", {"run": "09-30-00", "other": "09-30-01"}),
            ("curves", {"by": [evil]}),
            ("log", {}),
            ("sql", {"query": "SELECT name, value FROM params LIMIT 3"}),
            ("compare", {"by": ["lrr"]}),
            ("runs", {"limit": "many"}),
            ("runs", {"were": "lr > 0.1"}),
        ],
    )
    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert [error for error, _ in answers] == [False] * 8 + [True] * 3
    assert all(text.replace("\n", "").isprintable() for _, text in answers)
    assert answers[1][1].split("\n")[0] == "run,x?y?[2J?"
    assert "did you mean 'lr'?" in answers[8][1]
    assert answers[10][1] == "runs takes no argument 'were'\nhint: did you mean 'where'?"
    assert {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_nowhere(tmp_path: Path) -> None:
    done = run_rla("mcp", "-d", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "holds no database" in done.stderr
