"""A database as the original RLA wrote it: the one that RLA_LEGACY_DATA names, or a look-alike made here.

The look-alike has the shapes that real ones have, each file in the original's format: both spellings of
the index (spaces until June 2022, underscores since), a tracked hyper-parameter that comes twice, tables
with a log alone, runs that ended before their first row or first file, rows of nothing but commas, an
empty event file, checkpoints named by TensorFlow and by PyTorch, managers archived as pickles, figures.
No writer of ours has a part in it: a fault of its own would not show. Tests count files themselves
(`entries`, `cells`), so that they hold for both.
"""

from __future__ import annotations

import csv
import os
import pickle
import struct
import sys
import types
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LEGACY_VARIABLE = "RLA_LEGACY_DATA"
LEGACY_TABLE = "test_manger_demo_task"
KINDS = ("log", "archive_tester", "checkpoint", "results")
RATE = 0.0001
LOSS = "perf/mse"


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run; `rows` is 0 where it ended at once, `parts` are the kinds and files that it has."""

    date: str  # as the index begins, `2022/06/21/14-11-26-523232`
    gap: str  # what the index is spelt with
    parts: frozenset[str]
    rows: int = 0
    info: str = "&input_size=16"
    table: str = LEGACY_TABLE

    @property
    def index(self) -> str:
        return f"{self.date}{self.gap}10.0.0.65{self.gap}{self.info}"

    @property
    def params(self) -> dict[str, object]:
        if self.table == LEGACY_TABLE:
            return {"input_size": 16, "learning_rate": RATE}
        return {"env": "CartPole-v1", "info": "default exp info", "seed": 0}


WHOLE = frozenset(("log", "csv", "events", "archive", "results", "torch"))
TENSORFLOW = WHOLE - {"torch"} | {"tensorflow"}
NO_FIGURE = frozenset(("log", "csv", "events", "archive"))
NO_EVENTS = frozenset(("log", "csv", "archive"))
LOG_ALONE = frozenset(("log", "csv", "events"))
EMPTY_EVENTS = frozenset(("log", "csv", "empty events"))
BARE = frozenset[str]()  # the log folder with an empty log.txt
TWICE = "&input_size=16&input_size=16"
EXAMPLE = "&info=default exp info&seed=0&env=CartPole-v1"
RUNS = (
    OldRun("2022/03/03/15-03-03-761940", " ", LOG_ALONE, 49, EXAMPLE, "sb3_ppo"),
    OldRun("2022/03/03/15-25-48-128775", " ", EMPTY_EVENTS, 49, EXAMPLE, "sb_ppo_tf"),
    OldRun("2022/06/21/14-11-26-523232", " ", TENSORFLOW, 800),
    OldRun("2022/06/21/14-12-17-152036", " ", TENSORFLOW, 80),
    OldRun("2022/06/22/16-49-22-503248", " ", NO_FIGURE),
    OldRun("2022/06/22/16-57-55-580105", " ", NO_FIGURE, 50),
    OldRun("2022/06/22/18-15-57-636377", " ", NO_FIGURE, 1),
    OldRun("2022/06/22/20-11-25-796643", "_", WHOLE, 50),
    OldRun("2022/06/23/00-07-43-969899", "_", NO_FIGURE, 1, TWICE + "&input_size=16"),
    OldRun("2022/07/27/14-25-21-206798", "_", BARE),
    OldRun("2022/07/27/14-27-45-544539", "_", NO_EVENTS),
    OldRun("2022/07/27/14-27-50-996776", "_", WHOLE, 50, TWICE),
    OldRun("2022/07/27/14-30-22-366311", "_", NO_EVENTS),
    OldRun("2022/07/27/14-30-28-185124", "_", WHOLE, 50, TWICE),
    OldRun("2022/07/27/14-38-24-736729", "_", BARE),
    OldRun("2022/07/27/14-38-30-288562", "_", WHOLE, 50, TWICE),
)


def entries(root: Path, kind: str, glob: str) -> list[Path]:
    """Folders, or archived files, of runs; `glob` is `table/index`."""
    return sorted(root.joinpath(kind).glob(glob))


def entries_of_all_kinds(root: Path, glob: str, *, empty: bool = False) -> int:
    """How many there are; with `empty` only those of runs that wrote no row."""
    rowless = {path.name for path in entries(root, "log", glob) if not has_rows(path)}
    found = [path.name.removesuffix(".pkl") for kind in KINDS for path in entries(root, kind, glob)]
    return sum(name in rowless for name in found) if empty else len(found)


def has_rows(log: Path) -> bool:
    path = log / "progress.csv"
    return path.is_file() and path.stat().st_size > 0


def cells(root: Path, column: str) -> int:
    """How many cells of a column are filled, over all progress files."""
    count = 0
    for path in root.glob("log/*/*/*/*/*/progress.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            count += sum(bool(row.get(column)) for row in csv.DictReader(file))
    return count


def write_look_alike(root: Path) -> None:
    """Write all of RUNS below `root`."""
    for run in RUNS:
        log = root / "log" / run.table / run.index
        log.mkdir(parents=True)
        (log / "log.txt").write_text("".join(log_lines(run)) if "log" in run.parts else "")
        if "csv" in run.parts:
            write_rows(log, run)
        if "events" in run.parts:
            write_events(log / "tb" / "events", run)
        elif "empty events" in run.parts:
            (log / "tb" / "events").mkdir(parents=True)
            (log / "tb" / "events" / "events.out.tfevents.1646292350.box").touch()
        if "archive" in run.parts:
            path = root / "archive_tester" / run.table / f"{run.index}.pkl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive_of(run))
        if "results" in run.parts:
            write_results(root, run)


def rows_of(run: OldRun) -> Iterator[dict[str, object]]:
    """What a run logged: every tenth row has the loss, as the rest of it was another call."""
    for step in range(run.rows):
        row: dict[str, object] = {"time-step": step * 2048 if run.table != LEGACY_TABLE else step}
        row["y_out"] = 0.0365 / (step + 1) - 0.02
        if step % 10 == 9:
            row[LOSS] = 0.9 / (step + 1)
        yield row


def log_lines(run: OldRun) -> Iterator[str]:
    """The text log: what the manager said, then a table a row."""
    yield f"Logging to ../log/{run.table}/{run.index}/\n"
    for key, value in run.params.items():
        yield f"[BACKUP] 0 : key: {key}, value: {value}\n"
    for row in rows_of(run):
        shown = {
            key: f"{value:<8.3g}" if isinstance(value, float) else str(value) for key, value in row.items()
        }
        left, right = max(map(len, shown)), max(map(len, shown.values()))
        border = "-" * (left + right + 40) + "\n"
        yield border
        for key, value in sorted(shown.items()):
            yield f"| {key:<{left}} | {value:<{right}} |\n"
        yield border
    if run.rows <= 1:
        yield "[WARN] 0 : sync: start\n"


def write_rows(log: Path, run: OldRun) -> None:
    """progress.csv, where each row with a loss is followed by one of commas, backup.txt and warn.txt."""
    rows = list(rows_of(run))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [",".join(columns) + "\n"] if rows else []
    for row in rows:
        lines.append(",".join(str(row.get(key, "")) for key in columns) + "\n")
        if LOSS in row:
            lines.append("," * (len(columns) - 1) + "\n")
    (log / "progress.csv").write_text("".join(lines))
    known = run.rows > 0 or "events" in run.parts
    backup = (f"[BACKUP] 0 : key: {key}, value: {value}\n" for key, value in run.params.items())
    (log / "backup.txt").write_text("".join(backup) if known else "")
    (log / "warn.txt").write_text("[WARN] 0 : sync: start\n" if run.rows == 1 else "")


def write_events(folder: Path, run: OldRun) -> None:
    """An event file, by a writer that is not ours."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for row in rows_of(run):
            for key, value in row.items():
                writer.add_scalar(key, value, row["time-step"])


def write_results(root: Path, run: OldRun) -> None:
    """Two figures, and a checkpoint whose content nobody reads."""
    folder = root / "results" / run.table / run.index
    folder.mkdir(parents=True)
    for step in (0, 10):
        (folder / f"{step}-react_func.png").write_bytes(picture(step))
    folder = root / "checkpoint" / run.table / run.index
    folder.mkdir(parents=True)
    if "torch" in run.parts:
        (folder / "checkpoint-80.pt").write_bytes(b"PK\3\4 no tensor")
        return
    name = f"checkpoint-{run.rows}"
    (folder / "checkpoint").write_text(
        f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
    )
    for suffix in ("data-00000-of-00001", "index", "meta"):
        (folder / f"{name}.{suffix}").write_bytes(b"no tensor")


def picture(shade: int, side: int = 8) -> bytes:
    """A PNG of one grey."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    lines = (b"\0" + bytes([shade]) * side) * side
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def archive_of(run: OldRun) -> bytes:
    """The archived manager: by name only, as the original's dill writes what can be imported."""
    root = "../../test_data_root"
    return old_pickle(
        3,
        hyper_param=run.params,
        hyper_param_record=["input_size=16"] * run.info.count("="),
        custom_data={},
        record_date=datetime.strptime(run.date, "%Y/%m/%d/%H-%M-%S-%f"),  # noqa: DTZ007 - as the original
        info=run.info,
        task_name=run.table,
        data_root=root,
        project_root="..",
        dl_framework="torch" if "torch" in run.parts else "tensorflow",
        pkl_file=f"{root}/archive_tester/{run.table}/{run.index}.pkl",
        log_dir=f"{root}/log/{run.table}/{run.index}/",
        checkpoint_dir=f"{root}/checkpoint/{run.table}/{run.index}/",
        results_dir=f"{root}/results/{run.table}/{run.index}/",
        saver=None,
        writer=None,
    )


def old_pickle(protocol: int = 2, **state: object) -> bytes:
    """The bytes of an archived manager, as the original's dill writes them."""
    modules = {}
    for name in ("RLA", "RLA.easy_log", "RLA.easy_log.tester", "RLA.easy_log.time_step"):
        modules[name] = types.ModuleType(name)
    tester = type("Tester", (), {"__module__": "RLA.easy_log.tester"})
    holder = type("TimeStepHolder", (), {"__module__": "RLA.easy_log.time_step"})
    modules["RLA.easy_log.tester"].Tester = tester  # type: ignore[attr-defined]
    modules["RLA.easy_log.time_step"].TimeStepHolder = holder  # type: ignore[attr-defined]
    manager = tester()
    manager.__dict__.update(
        hyper_param={"lr": 0.1, "nested": {"a": [1, 2]}},
        hyper_param_record=["lr=0.1", "lr=0.1"],
        custom_data={"best": deque([1.5, 2.5], maxlen=3)},
        record_date=datetime(2021, 3, 4, 5, 6, 7, 8),  # noqa: DTZ001 - as the original
        info="&lr=0.1&lr=0.1",
        task_name="old_task",
        root="/somewhere",
        time_step_holder=holder(),
        private_config={"REMOTE_SETTING": {"ftp_server": "h", "password": "not to be seen"}},
    )
    manager.__dict__.update(state)
    sys.modules.update(modules)
    try:
        return pickle.dumps(manager, protocol)
    finally:
        for name in modules:
            del sys.modules[name]


def named_database() -> Path | None:
    """The database that the environment names, if it does.

    Raises:
        FileNotFoundError: it names a folder that is not there.
    """
    named = os.environ.get(LEGACY_VARIABLE)
    if not named:
        return None
    folder = Path(named)
    if not folder.is_dir():
        raise FileNotFoundError(f"{LEGACY_VARIABLE} names {folder}, which is not a folder")
    return folder
