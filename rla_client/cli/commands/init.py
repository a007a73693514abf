"""`rla init`: setup of a project."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import AsJson
from rla_client.cli.output import print_done
from rla_client.cli.registration import BEGIN, add_command
from rla_client.config.project import CONFIG_NAME, DATA_FOLDER
from rla_client.config.schema import template_text
from rla_client.contract.errors import ArgumentError

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
    add_command(app, init, BEGIN, "rla init", "rla init YOUR_PROJECT")


def init(
    folder: Annotated[
        Path, typer.Argument(help="The project's folder, made where it is missing.", show_default=False)
    ] = Path(),
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
    """Lines to add to a script, so that its runs go into the folder `data`, and commands to use then."""
    usual = data.strip("/") == DATA_FOLDER
    return SNIPPET.format(
        table=json.dumps(folder.absolute().name, ensure_ascii=False),
        where="" if usual else f", data_root={json.dumps(data, ensure_ascii=False)}",
        option="" if usual else f"; the first three with --data-root {shlex.quote(data)}",
    )


def set_up(folder: Path, data: str = DATA_FOLDER) -> list[str]:
    """Set up a project in a new or existing folder; returns a line for each action.

    Args:
        folder: the project's folder.
        data: folder of its database, relative to `folder`.

    Raises:
        ArgumentError: `folder` is a file, or has an rla_config.yaml already; nothing was changed.
    """
    done = []
    if not os.path.lexists(folder):
        folder.mkdir(parents=True)
        done.append(f"made the folder {folder}")
    elif not folder.is_dir():
        raise ArgumentError(f"{folder} is a file, not a folder")
    config = folder / CONFIG_NAME
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(template_text())
    except FileExistsError:
        raise ArgumentError(
            f"{config} is there already and was not touched; delete it first for a fresh one"
        ) from None
    done.append(f"wrote {config}")
    added = ignore(folder / IGNORE_NAME, [f"/{data.strip('/')}/", "/plot.png"])
    if added:
        done.append(f"added to {folder / IGNORE_NAME}: {' '.join(added)}")
    return done


def ignore(path: Path, lines: list[str]) -> list[str]:
    """Append lines that a .gitignore lacks; returns the appended lines."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    present = {line.strip() for line in text.splitlines()}
    missing = [line for line in lines if line not in present and line.strip("/") not in present]
    if missing:
        begin = "" if not text or text.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(begin + "\n".join([IGNORE_HEAD, *missing]) + "\n")
    return missing
