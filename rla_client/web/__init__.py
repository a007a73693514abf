"""`rla web`: the page where people look at their runs.

A server of the reader's own (starlette and uvicorn, extra `web`) over one or several data roots. It reads
what the rest of the package reads and adds nothing to a database but tags, notes and moves to the trash.

- `serve` starts it; `guard` lets nobody in without the token, `app` puts the answers together.
- `site` knows the runs of all databases by number and which of them changed; `table` answers for the list.
- `columns` reads columns of progress.csv and continues with files that grow; `curves` makes them as many
  points as a panel has pixels; `live` sends what is new.
- `detail` is one run, `media` its pictures, `machine` this machine and the fleet.
- `static/` is the page: ES modules as they are, and uPlot in `vendor/`.

Nothing is loaded from a network, and nothing here is imported unless the page is asked for.
"""
