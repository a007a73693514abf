"""`rla web`: the page where people look at their runs.

A server of the reader's own (starlette and uvicorn, extra `web`) over one or several data roots. It reads
what the rest of the package reads and adds nothing to a database but tags, notes and moves to the trash.

- `serve` starts it, lets nobody in without the token and puts the answers together.
- `site` knows the runs of all databases by number and which of them changed, reads columns of their tables,
  also of those that grow, and sends what is new.
- `runs` answers for the list, for one run, and for hyper-parameters against a metric; `curves` makes columns
  as many points as a panel has pixels; `files` are a run's files, pictures, checkpoints.
- `report` writes the page as one file, which needs no server.
- `static/` is the page: ES modules as they are, and uPlot in `vendor/`.

Nothing is loaded from a network, and nothing here is imported unless the page is asked for.
"""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"
