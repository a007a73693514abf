"""Databases for the page: what people have, and what somebody with bad intentions would write."""

from __future__ import annotations

import csv
import io
import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from support.written_runs import write_run

BEGIN: Final = datetime(2026, 11, 21, 9, 30)  # noqa: DTZ001 - an index is local time
HOSTILE: Final = (  # names and texts that must stay what they are: text
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    '"><svg onload=window.hacked=3>',
    "javascript:window.hacked=4",
    "'\"`${window.hacked=5}`&amp;&lt;",
    "\x1b]0;title\x07\x1b[31mred",
    "\u202egnp.exe",
    "__proto__",
    "constructor",
    "=cmd|' /C calc'!A0",
)


def text_of(value: float | str) -> str:
    """A cell as our agent writes it."""
    return value if isinstance(value, str) else repr(value)


def write_page_run(  # noqa: PLR0913 - one option for each thing a test varies
    root: Path,
    number: int,
    columns: Mapping[str, Sequence[float | str]] | None = None,
    *,
    table: str = "task",
    host: str = "box",
    params: Mapping[str, object] | None = None,
    tracked: Sequence[str] = ("lr", "seed"),
    steps: Sequence[float] | None = None,
    state: str = "finished",
    tags: Sequence[str] = (),
    note: str = "",
) -> str:
    """A run with its own columns, such as any sweep may have many of; its index.

    Args:
        root: data root.
        number: of the run: one minute for each after the first.
        columns: metrics by name, all of one length.
        table: task table.
        host: in run.json.
        params: hyper-parameters.
        tracked: those of them that the index names.
        steps: of the rows; 0, 1, 2, … by default.
        state: in run.json; a live one was written just now.
        tags: of note.json.
        note: of note.json.
    """
    columns = {"return": [step * 0.5 for step in range(10)]} if columns is None else columns
    params = {"lr": 0.1, "seed": number} if params is None else params
    opened = BEGIN + timedelta(minutes=number)
    info = "".join(f"&{name}={params[name]}" for name in tracked if name in params)
    index = f"{opened:%Y/%m/%d/%H-%M-%S-%f}_10.0.0.5_{info or '&'}"
    rows = max(map(len, columns.values()), default=0)
    steps = range(rows) if steps is None else steps
    folder = root / "log" / table / index
    folder.mkdir(parents=True)
    cells = [*([text_of(value) for value in values] for values in columns.values())]
    cells += [[text_of(step) for step in steps], [str(opened.timestamp() + row) for row in range(rows)]]
    text = io.StringIO()
    header = csv.writer(text, lineterminator="\n")
    header.writerow([*columns, "time-step", "timestamp"])
    text.write("".join(",".join(row) + "\n" for row in zip(*cells, strict=True)))
    (folder / "progress.csv").write_text(text.getvalue())
    live = state == "running"
    run = {
        "format": 1,
        "run_id": f"run{number}",
        "host": host,
        "state": state,
        "opened": opened.timestamp(),
        "updated": time.time() if live else opened.timestamp() + rows,
        "time_step": steps[-1] if rows else 0,
        "last_row": opened.timestamp() + max(rows - 1, 0),
    }
    run |= {} if live else {"closed": opened.timestamp() + rows}
    (folder / "run.json").write_text(json.dumps(run))
    if tags or note:
        (folder / "note.json").write_text(json.dumps({"tags": list(tags), "note": note}))
    hyper = root / "hyperparameter" / table / index
    hyper.mkdir(parents=True)
    (hyper / "parameter.json").write_text(json.dumps(dict(params)))
    return index


def write_sweep(root: Path, seeds: int = 3, lrs: Sequence[float] = (0.1, 0.01), rows: int = 50) -> list[str]:
    """Seeds x lr over two tables and two hosts; `return` and `loss` of each run are its own."""
    found = []
    for number in range(seeds * len(lrs)):
        seed, lr = number % seeds, lrs[number // seeds]
        columns = {
            "return": [lr * step + seed for step in range(rows)],
            "loss": [1.0 / (1 + step + seed) for step in range(rows)],
        }
        found.append(
            write_page_run(
                root,
                number,
                columns,
                table=("task", "other/deep")[number // seeds % 2],
                host=("box", "node-b")[number % 2],
                params={"lr": lr, "seed": seed, "env": "Hopper-v4", "net": {"width": 64}},
            )
        )
    return found


def write_odd_values(root: Path) -> str:
    """A run whose values are no finite numbers at times, and one that never is."""
    values: list[float | str] = [1.0, math.nan, 2.0, math.inf, 3.0, -math.inf, 4.0, "", 5.0, math.nan]
    return write_page_run(root, 0, {"return": values, "never": [math.nan] * 10, "big": [10.0**307] * 10})


def write_hostile(root: Path) -> list[str]:
    """Runs whose table, parameters, metrics, tags, note and host are `HOSTILE`."""
    found = []
    for number, text in enumerate(HOSTILE):
        safe = text.replace("/", "%").replace("\x1b", "").replace("\x07", "")
        found.append(
            write_page_run(
                root,
                number,
                {text: [1.0, 2.0, 3.0], "return": [1.0, 2.0, 3.0]},
                table=safe,
                host=text,
                params={text: text, "seed": number, "nested": {text: [text]}},
                tracked=("seed",),
                tags=[text, "tag"],
                note=f"{text}\n{text}",
            )
        )
    return found


def write_many_metrics(root: Path, count: int = 10_000) -> str:
    """One run with this many columns, three rows."""
    return write_page_run(root, 0, {f"group{n % 100}/metric{n}": [float(n)] * 3 for n in range(count)})


def write_long(root: Path, rows: int = 1_000_000, number: int = 0) -> str:
    """One run with this many rows; `spike` is 0 but for one row."""
    place = rows // 3
    columns = {
        "return": [step * 0.5 for step in range(rows)],
        "spike": [1e6 if step == place else 0.0 for step in range(rows)],
    }
    return write_page_run(root, number, columns)


def write_many_runs(root: Path, count: int = 10_000) -> None:
    """This many small runs: seeds x lr in ten tables."""
    for number in range(count):
        seed, lr = number % 10, (0.1, 0.01, 0.001)[number // 10 % 3]
        write_page_run(
            root,
            number,
            {"return": [float(number), number + 0.5]},
            table=f"table{number % 10}",
            params={"lr": lr, "seed": seed, "number": number},
        )


def write_small(root: Path, count: int = 3) -> list[str]:
    """Runs with an item of each kind, by `write_run`."""
    return [write_run(root, number=number) for number in range(count)]


class LiveRun:
    """A running run; `append` writes a row, a thread between `start` and `stop` one after another."""

    def __init__(self, root: Path, number: int = 0, rows: int = 3, **options: object) -> None:
        columns = {"return": [step * 0.5 for step in range(rows)]}
        self.index = write_page_run(root, number, columns, state="running", **options)  # type: ignore[arg-type]
        self.folder = root / "log" / str(options.get("table", "task")) / self.index
        self.rows = rows
        self._begin = (BEGIN + timedelta(minutes=number)).timestamp()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def append(self, value: float | None = None) -> float:
        """Write one row, as the agent does; its value."""
        shown = self.rows * 0.5 if value is None else value
        with (self.folder / "progress.csv").open("a") as file:
            file.write(f"{shown!r},{self.rows},{self._begin + self.rows}\n")
        self.rows += 1
        return shown

    def close(self, state: str = "finished") -> None:
        """Write run.json as at the end."""
        self._rewrite(state=state, closed=self._begin + self.rows, updated=time.time())

    def start(self, every_s: float = 0.05) -> LiveRun:
        """Append in a thread until `stop`."""
        self._thread = threading.Thread(target=self._run, args=(every_s,), name="live run", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, every_s: float) -> None:
        while not self._over.wait(every_s):
            self.append()

    def _rewrite(self, **fields: object) -> None:
        path = self.folder / "run.json"
        temp = path.with_name("run.json.tmp")
        temp.write_text(json.dumps(json.loads(path.read_text()) | fields))
        temp.replace(path)
