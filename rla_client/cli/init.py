"""`rla init`: make a folder a project: rla_config.yaml, .gitignore, and what to add to a script."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import BEGIN, AsJson, print_done
from rla_client.config.schema import CONFIG_NAME, DATA_FOLDER
from rla_client.contract.errors import ArgumentError
from rla_client.contract.user_messages import examples

IGNORE_NAME = ".gitignore"
IGNORE_HEAD = "# runs and their data (rla)"
SNIPPET = """\
Add to your training script:

    import rla_client

    # args: dict, Namespace, dataclass, OmegaConf
    rla_client.init({table}, config=args, track=["seed"]{where})

    # in the loop
    rla_client.log({{"loss/policy": loss}}, step=step)

Then look: rla ls, rla show, rla web, rla-agent status{option}
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init", rich_help_panel=BEGIN, epilog=examples("rla init", "rla init YOUR_PROJECT"))(init)


def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder.", show_default=False)] = Path(),
    data: Annotated[
        str, typer.Option("--data", help="Folder of the database, relative to the project.")
    ] = DATA_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Write a commented rla_config.yaml, extend .gitignore, and show what to add to a script."""
    done = set_up(folder, data)
    snippet = snippet_of(folder, data)
    print_done({"done": done, "snippet": snippet}, "\n".join([*done, "", snippet]), as_json=as_json)


def snippet_of(folder: Path, data: str) -> str:
    """What to add to a script of the project, whose runs then go where `data` says, and what to type then."""
    usual = data.strip("/") == DATA_FOLDER
    return SNIPPET.format(
        table=json.dumps(folder.absolute().name, ensure_ascii=False),
        where="" if usual else f", data_root={json.dumps(data, ensure_ascii=False)}",
        option="" if usual else f"; the first three with --data-root {shlex.quote(data)}",
    )


def set_up(folder: Path, data: str = DATA_FOLDER) -> list[str]:
    """Make `folder` a project.

    Args:
        folder: exists.
        data: the database's folder below it, for .gitignore.

    Returns:
        What was done, one line each.

    Raises:
        ArgumentError: it is not a folder, or has an rla_config.yaml already; nothing was changed.
    """
    from rla_client.config.schema import template_text

    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise ArgumentError(message)
    config = folder / CONFIG_NAME
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(template_text())
    except FileExistsError:
        message = f"{config} is there already and was not touched; delete it first for a fresh one"
        raise ArgumentError(message) from None
    done = [f"wrote {config}"]
    added = ignore(folder / IGNORE_NAME, [f"/{data.strip('/')}/", "/plot.png"])
    if added:
        done.append(f"added to {folder / IGNORE_NAME}: {' '.join(added)}")
    return done


def ignore(path: Path, lines: list[str]) -> list[str]:
    """Append the lines that a .gitignore lacks; returns them."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    present = {line.strip() for line in text.splitlines()}
    missing = [line for line in lines if line not in present and line.strip("/") not in present]
    if missing:
        begin = "" if not text or text.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(begin + "\n".join([IGNORE_HEAD, *missing]) + "\n")
    return missing
