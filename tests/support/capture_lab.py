"""Programs that know nothing of rla_client, run by `rla-agent run --capture`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

AGENT = str(Path(sys.executable).with_name("rla-agent"))
LIMIT_S = 240


@dataclass(frozen=True)
class CapturedRun:
    """One run that was found afterwards."""

    folder: Path

    @property
    def rows(self) -> list[dict[str, str]]:
        path = self.folder / "progress.csv"
        return list(csv.DictReader(path.open())) if path.exists() else []

    @property
    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.folder / "parameter.yaml").read_text()) or {}
        return found

    @property
    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return found

    @property
    def captured(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "captured.json").read_text())
        return found

    @property
    def table(self) -> str:
        return self.folder.relative_to(next(one for one in self.folder.parents if one.name == "log")).parts[0]

    def values(self) -> dict[tuple[str, int], float]:
        """Every number by tag and step."""
        return {
            (tag, int(float(row["time-step"]))): float(cell)
            for row in self.rows
            for tag, cell in row.items()
            if cell and tag not in {"time-step", "timestamp"}
        }


@dataclass(frozen=True)
class Result:
    """What a captured command did."""

    code: int
    stdout: bytes
    stderr: str
    runs: list[CapturedRun]

    @property
    def run(self) -> CapturedRun:
        assert len(self.runs) == 1, (self.stderr, self.runs)
        return self.runs[0]


def capture(
    folder: Path,
    script: str,
    *arguments: str,
    options: Sequence[str] = (),
    flags: Sequence[str] = (),
    name: str = "program.py",
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run a script in a folder, captured; its runs lie in `data` there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(script)
    command = [sys.executable, *flags, name, *arguments]
    return capture_command(folder, *command, options=options, environment=environment)


def capture_command(
    folder: Path,
    *command: str,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> Result:
    """Run a command in a folder, captured; `before`: of another tool, which runs all of it."""
    done = subprocess.run(
        [*before, AGENT, "run", "--capture", *options, "--", *command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    runs = sorted(path.parent for path in folder.glob("data/log/*/*/*/*/*/run.json"))
    return Result(done.returncode, done.stdout, done.stderr.decode(), [CapturedRun(one) for one in runs])


def run_plain(
    folder: Path,
    script: str,
    *arguments: str,
    name: str = "program.py",
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run the same without capture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(script)
    done = subprocess.run(
        [sys.executable, name, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr.decode(), [])


def own_events(folder: Path) -> list[Any]:
    """All events of the program's own event files below a folder, in the order of their files."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    return [
        Event.FromString(record)
        for path in sorted(folder.rglob("events.out.*"))
        for record in RawEventFileLoader(str(path)).Load()
    ]


def own_scalars(folder: Path) -> dict[tuple[str, int], float]:
    """Every scalar of these, by tag and step, as float32."""
    return {
        (value.tag, event.step): value.simple_value
        for event in own_events(folder)
        if event.HasField("summary")
        for value in event.summary.value
        if value.WhichOneof("value") == "simple_value"
    }
