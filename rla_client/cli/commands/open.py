"""`rla open`: a folder or the page of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args
from urllib.parse import quote

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, DataRoot, RunArgument, TableOption
from rla_client.cli.output import print_done, say
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.errors import ArgumentError, NoSuchRunError, extra
from rla_client.contract.layout import CHECKPOINT, CODE, LOG, OTHER_RESULTS
from rla_client.contract.process.screen import has_screen

if TYPE_CHECKING:
    from rla_client.database.run import Run

Part: TypeAlias = Literal["folder", "code", "results", "checkpoint", "page"]
KINDS = {"folder": LOG, "code": CODE, "results": OTHER_RESULTS, "checkpoint": CHECKPOINT}


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, open_run, LOOK, "rla open @last", "rla open seed=3 code", name="open")


def open_run(
    run: RunArgument = "@last",
    part: Annotated[
        Part,
        typer.Argument(metavar="PART", help="folder (tables and logs), code, results, checkpoint or page."),
    ] = "folder",
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print where a run's files are, and open them where there is a screen; page: in the browser, live."""
    try:
        found = open_database(data_root).find(run, table)
    except NoSuchRunError as error:
        if run not in get_args(Part):
            raise
        raise NoSuchRunError(f"{str(error).splitlines()[0]}\nhint: rla open @last {run}") from None
    if part == "page":
        if as_json:
            raise ArgumentError("a page has no JSON\nhint: rla show RUN --json")
        _open_page(found)
        return
    folder = os.path.abspath(found.folder(KINDS[part]))
    if not os.path.isdir(folder):
        raise ArgumentError(f"{found.record.date} has no {part}: {folder} is not there")
    print_done({"run": found.index, "table": found.table, "folder": folder}, folder, as_json=as_json)
    tool = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if tool is not None and has_screen():
        subprocess.Popen(
            [tool, folder], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def _open_page(run: Run) -> None:
    with extra("web", "rla open RUN page"):
        from rla_client.web.server import serve

    path = quote(f"0/{run.table}/{run.index}", safe="/")
    link = f"#/run/{path}"
    root = run.data_root
    serve([root], host="127.0.0.1", port=None, allowed=(), browser=True, link=link, say=_say_now)


def _say_now(text: str) -> None:
    say(text)
    sys.stdout.flush()
