"""Import of samples that a trainer wrote into a run that is there.

Read are Parquet files (TRL's `completions/`) and JSON lines (verl, NeMo-RL, prime-rl, AReaL). They become a
samples file of their own, `samples.import-<hash of the path>.jsonl.gz`, whole or not at all. What was
imported before stays as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder, is_there
from rla_client.contract.layout import SAMPLES, item_path, samples_file
from rla_client.contract.sample_encoding import SampledAt, encode_samples
from rla_client.samples.cells import plain_row
from rla_client.samples.completion_tables import STEPS, known_names, read_parquet, step_of_name, trl_rows

ENDINGS = (".parquet", ".jsonl", ".json", ".ndjson")
TRL_NAME = "completions_"
MAX_CHARS = 1_000_000  # of a cell
CHUNK_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        file: the run's samples file.
        rows: that it has now.
        there: it had been imported before.
    """

    file: Path
    rows: int
    there: bool = False


def import_samples(data_root: Path, table: str, index: str, source: Path, now: float) -> Imported:
    """Put the samples of a file, or of all files in a folder, into a run.

    Args:
        data_root: of the database.
        table: task table of the run.
        index: of the run.
        source: a file, or a folder.
        now: Unix seconds, the timestamp of samples that have none.

    Raises:
        ArgumentError: there is nothing to import, or a file is not understood; nothing is written then.
        OSError: a file cannot be read or written.
    """
    files = [source] if source.is_file() else sorted(
        (path for path in source.rglob("*") if path.suffix in ENDINGS and path.is_file()),
        key=lambda path: (step_of_name(path) or 0, str(path)),
    )  # fmt: skip
    if not files:
        raise ArgumentError(f"{source} has no file of samples: it should end in {', '.join(ENDINGS)}")
    role = f"import-{hashlib.blake2b(str(source.resolve()).encode(), digest_size=4).hexdigest()}"
    name = samples_file(role)
    with held_folder(data_root, item_path(SAMPLES, table, index), create=True) as folder:
        final = data_root / SAMPLES / table / index / name
        if is_there(folder / name):
            return Imported(final, 0, there=True)
        rows = 0
        with replacing(folder / name) as temp, temp.open("wb") as out:
            for path in files:
                for at, some in _chunks(path, role, now):
                    out.writelines(encode_samples(some, at, rows))
                    rows += len(some)
            if not rows:
                raise ArgumentError(f"{source} has no samples")
    return Imported(final, rows)


def _chunks(path: Path, role: str, now: float) -> Iterator[tuple[SampledAt, list[dict[str, Any]]]]:
    """Rows of a file with the step of each run of them."""
    if path.suffix == ".parquet":
        rows: Sequence[Mapping[str, Any]] = read_parquet(path)
    else:
        rows = list(_json_rows(path))
    steps = [_step(row, path) for row in rows]
    if path.name.startswith(TRL_NAME):
        rows = trl_rows(rows)
    for step, numbers in groupby(range(len(rows)), lambda number: steps[number]):
        chosen = list(numbers)
        for begin in range(0, len(chosen), CHUNK_ROWS):
            some = [
                plain_row(
                    {key: value for key, value in known_names(rows[n]).items() if key not in STEPS},
                    MAX_CHARS,
                    tokens=False,
                )
                for n in chosen[begin : begin + CHUNK_ROWS]
            ]
            yield SampledAt("train", role, step, now), some


def _step(row: Mapping[str, Any], path: Path) -> int | float:
    for name in STEPS:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return step_of_name(path) or 0


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """JSON lines, or one list of objects.

    Raises:
        ArgumentError: it is neither.
    """
    with open_plain(path, links=True) as file:
        number = 0
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ArgumentError(f"line {number} of {path} is no JSON: {error}") from error
            for row in found if isinstance(found, list) else [found]:
                if not isinstance(row, dict):
                    raise ArgumentError(f"line {number} of {path} is no JSON object")
                yield row
