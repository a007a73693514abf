"""Routes of the page.

Each answer is a function of (site, body or query of the request) in another module. An error that the user
can fix is answered with status 400 and its text, `{"error": …}`. Answers run in threads, except the stream of
events.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rla_client.contract.errors import RlaError
from rla_client.database.views import read_views
from rla_client.web import (
    STATIC,
    checkpoints,
    column_values,
    curves,
    file_download,
    file_search,
    file_text,
    histograms,
    hyper_parameter_panels,
    importance,
    item_files,
    media,
    offered_names,
    page_edits,
    panel_csv,
    plot_command,
    result_tables,
    run_comparison,
    run_environment,
    run_list,
    run_overview,
    sample_list,
    sample_search,
    sample_story,
    sample_texts,
    sparklines,
    system_metrics,
    values_at_step,
)
from rla_client.web.agent_status import AgentStatus
from rla_client.web.fleet_status import FleetStatus
from rla_client.web.guard import SANDBOXED, Guard
from rla_client.web.live_stream import stream
from rla_client.web.request_arguments import asked_ranks, whole_number
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from starlette.types import ASGIApp


TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
WAITING = frozenset({"status", "fleet", "trash"})  # answers that wait for a process have threads of their own
HEAVY = frozenset({"curves", "csv", "parallel", "scatter", "values"})  # run one at a time, to bound memory
LONG = frozenset(
    {
        "sparklines",
        "difference",
        "search",
        "files",
        "media",
        "environment",
        "samples_search",
        "sample_story",
    }
)  # may take seconds in large databases
THREADS = 4  # answers at once; more would compete for the GIL and need more memory
_NO_PLOTLY = (
    "a figure of plotly: `pip install plotly` where `rla web` runs shows it here; saved, it opens in a "
    "browser that reaches cdn.plot.ly"
)
Answer = Callable[[Site, dict[str, Any]], Any]  # gets the body of a POST; returns JSON data or a Response
OF_A_RUN: dict[str, Answer] = {
    "run": run_overview.overview,
    "environment": run_environment.environment,
    "others": run_comparison.others,
    "difference": run_comparison.difference,
    "note": page_edits.note,
    "trash": page_edits.trash,
    "restore": page_edits.restore,
    "files": item_files.listing,
    "text": file_text.text,
    "search": file_search.search,
    "media": media.media,
    "histograms": histograms.histograms,
    "table": result_tables.table,
    "checkpoints": checkpoints.checkpoints,
    "system": system_metrics.system,
    "values": values_at_step.values_at_step,
    "samples": sample_list.listing,
    "sample": sample_texts.whole,
    "samples_search": sample_search.search,
    "sample_story": sample_story.story,
}


def make_app(site: Site, token: str, hosts: tuple[str, ...] = ()) -> ASGIApp:
    """The page of some databases as an ASGI application; `token` and `hosts` are those of `Guard`."""
    quick, waiting, heavy, long = (CapacityLimiter(count) for count in (THREADS, THREADS, 1, 2))
    kinds = ((WAITING, waiting), (HEAVY, heavy), (LONG, long))
    limiters = {name: limiter for names, limiter in kinds for name in names}
    agent = AgentStatus()
    posts: dict[str, Answer] = {
        "runs": lambda site, body: run_list.rows(site, whole_number(body, "since")),
        "columns": lambda site, body: column_values.column_values(
            site, body.get("names"), body.get("numbers"), body.get("group")
        ),
        "fitting": lambda site, body: run_list.fitting(site, body.get("where")),
        "differing": lambda site, body: offered_names.differing(site, body.get("numbers")),
        "names": lambda site, _: offered_names.names(site),
        "curves": curves.curves,
        "csv": panel_csv.as_csv,
        "command": plot_command.command,
        "live": stream,
        "metrics": lambda site, body: offered_names.metric_names(
            site.chosen(body.get("numbers")), asked_ranks(body)
        ),
        "sparklines": sparklines.sparklines,
        "importance": importance.importance,
        "parallel": hyper_parameter_panels.parallel,
        "scatter": hyper_parameter_panels.scatter,
        "views": lambda site, _: read_views(site.databases[0].data_root),
        "view": page_edits.view,
        **OF_A_RUN,
        "status": lambda site, _: agent.answer(site),
        "fleet": FleetStatus().answer,
    }
    own_files = _own_files()
    routes = [
        Route("/", own_files),
        Route("/static/{name:path}", own_files),
        Route("/api/file", _sending(site, quick), methods=["GET"]),
        Route("/api/plotly", _plotly, methods=["GET"]),
        *(
            Route(f"/api/{name}", _answering(site, answer, limiters.get(name, quick)), methods=["POST"])
            for name, answer in posts.items()
        ),
    ]
    return Guard(Starlette(routes=routes), token, hosts)


def _own_files() -> Callable[[Request], Awaitable[Response]]:
    """The page's own files, served from memory: they are requested while the threads read databases."""
    names = [path for path in STATIC.rglob("*") if path.is_file()]
    bodies = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in names}
    tags = {name: f'"{hashlib.sha256(body).hexdigest()[:32]}"' for name, body in bodies.items()}

    async def endpoint(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in bodies:
            return PlainTextResponse("not found\n", 404)
        headers = {
            "ETag": tags[name],
            "Cache-Control": "no-cache",
        }  # a browser may keep them, but must revalidate
        headers |= SANDBOXED if name == "sandbox.html" else {}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(bodies[name], media_type=TYPES.get(Path(name).suffix, "text/plain"), headers=headers)

    return endpoint


def _plotly(_: Request) -> Response:
    """The script of the plotly package, in place of the network address that stored figures refer to."""
    found = find_spec("plotly")  # imports nothing
    for folder in (found and found.submodule_search_locations) or ():
        script = Path(folder, "package_data", "plotly.min.js")
        if script.is_file():
            headers = {"Cache-Control": "private, max-age=3600"}
            return FileResponse(script, media_type="text/javascript", headers=headers)
    return JSONResponse({"error": _NO_PLOTLY}, 404)


def _answering(
    site: Site, answer: Answer, limiter: CapacityLimiter
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            body = json.loads(await request.body() or b"{}")
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the body is not JSON"}, 400)
        except ClientDisconnect:  # or a body above the limit of `Guard`
            return JSONResponse({"error": "the body is incomplete or too large"}, 413)
        if not isinstance(body, dict):
            return JSONResponse({"error": "the body is not a JSON object"}, 400)
        async with limiter:
            if await request.is_disconnected():  # a page that zooms quickly cancels requests
                return Response(status_code=499)
            return await run_sync(_guarded, answer, site, body)

    return endpoint


def _sending(site: Site, limiter: CapacityLimiter) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        names = ("range", "if-range", "if-none-match")
        asked = {**request.query_params, **{name: request.headers.get(name) for name in names}}
        return await run_sync(_guarded, file_download.send, site, asked, limiter=limiter)

    return endpoint


def _guarded(answer: Answer, site: Site, asked: dict[str, Any]) -> Response:
    """The response with an answer, or with the text of its error."""
    try:
        found = answer(site, asked)
    except Exception as error:  # noqa: BLE001 - reported; the server goes on
        text, status = _error_text(error)
        return JSONResponse({"error": text}, status)
    if isinstance(found, Response):
        return found
    return Response(
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"),
        media_type="application/json",
    )


def _error_text(error: Exception) -> tuple[str, int]:
    """The text of an error for the user, and the HTTP status."""
    if isinstance(error, RlaError):
        return str(error), 400
    if isinstance(error, OverflowError | RecursionError):
        return "a number is too large, or something is nested too deeply", 400
    if isinstance(error, FileNotFoundError):
        return f"not there any more: {error.filename or error}", 404
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""), 500
    traceback.print_exception(error, file=sys.stderr)
    return f"internal error of rla web: {type(error).__name__}: {error}", 500
