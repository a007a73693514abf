"""The page of runs (`rla web`).

A server of the user (starlette and uvicorn, extra `web`) over one or several data roots. It reads databases
through the rest of the package; the only changes are tags, notes, views and moves to the trash.

- `server` starts it, `guard` refuses requests without the token, `routes` maps paths to answers.
- `run_registry` numbers the runs of all databases, `curve_columns` and `growing_cache` read their tables,
  `live_stream` sends new rows.
- `run_list`, `run_overview`, `run_comparison`, `page_edits`, `importance` and `curves` answer for lists and
  panels; `item_files`, `file_text`, `file_download`, `media`, `checkpoints` and `system_metrics` for a run's
  files; `sample_list`, `sample_search` and `sample_story` for its samples.
- `report` writes the page as one file, which needs no server.
- `static/` is the page: ES modules as they are, and uPlot in `vendor/`.

Nothing is loaded from a network, and these modules are only imported for the page.
"""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"
