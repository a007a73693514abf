"""Detection of samples that a run already has.

Two samples are the same if their time-steps, prompts and completions are equal; without a completion, if
all logged values are. Other values of a dump may differ: rewards may be weighted in one of them, a long
cell may be cut. A sample that the run has twice is recognized twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.item.prune_notes import pruned_files
from rla_client.contract.layout import SAMPLES
from rla_client.contract.sample_encoding import OWN_COLUMNS
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.tree.chains import chain_of
from rla_client.samples.cells import CUT, CUT_TEXT, shortened

_TEXTS = ("prompt", "completion")
_DERIVED = frozenset((*OWN_COLUMNS, "group", CUT))


class KnownSamples:
    """The samples of a run, each of which matches one imported sample.

    Args:
        data_root: of the database.
        table: of the run.
        index: of the run.

    Attributes:
        met: number of imported samples that the run had already.

    Raises:
        ArgumentError: some samples of the run are not on this machine.
        BrokenFileError: a file of samples is damaged.
        OSError: a file of samples cannot be read.
    """

    def __init__(self, data_root: Path, table: str, index: str) -> None:
        self.met = 0
        links = chain_of(data_root, table, index)
        for folder in (data_root / SAMPLES / table / link.index for link in links):
            if any(not (folder / note.name).exists() for note in pruned_files(folder)):
                raise ArgumentError(
                    f"samples of the run are on the master alone, and could come twice\n"
                    f"hint: rla-agent transfer fetch '{folder}', then import again"
                )
        self._index = SampleIndex(data_root, table, links)
        self._index.refresh()
        if self._index.unread:
            raise ArgumentError(f"{self._index.unread[0]} may not be read: its samples could come twice")
        self._rows: dict[float, list[int]] = {}
        for row, step in enumerate(self._index.columns.get("step", ())):
            self._rows.setdefault(step, []).append(row)
        self._of_step: dict[float, Counter[bytes]] = {}
        self._lengths: dict[float, set[int]] = {}  # step → lengths that its long cells were cut to

    def without(self, rows: Iterable[dict[str, Any]], step: float) -> list[dict[str, Any]]:
        """The rows that the run does not have.

        Args:
            rows: rows of one time-step, as plain data.
            step: their time-step.
        """
        if step not in self._rows:
            return list(rows)
        if step not in self._of_step:
            self._read(step)
        counts = self._of_step[step]
        new = []
        for row in rows:
            known = next((key for key in self._keys(row, step) if counts[key] > 0), None)
            if known is None:
                new.append(row)
            else:
                counts[known] -= 1
                self.met += 1
        return new

    def _read(self, step: float) -> None:
        counts: Counter[bytes] = Counter()
        lengths: set[int] = set()
        for _, line in self._index.texts(self._rows[step]):
            row = json.loads(line)
            counts[_key(row)] += 1
            for name in row.get(CUT) or ():
                found = CUT_TEXT.search(row[name]) if isinstance(row.get(name), str) else None
                if found is not None:
                    lengths.add(2 * found.start())
        self._of_step[step], self._lengths[step] = counts, lengths

    def _keys(self, row: Mapping[str, Any], step: float) -> Iterable[bytes]:
        """Keys of a row, and of the row with its cells cut to each known length."""
        yield _key(row)
        for length in self._lengths[step]:
            yield _key(row, length)


def _key(row: Mapping[str, Any], length: int | None = None) -> bytes:
    names = _TEXTS if "completion" in row else sorted(row.keys() - _DERIVED)
    cells = [[name, _plain(row.get(name), length)] for name in names]
    text = json.dumps(cells, ensure_ascii=False, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).digest()


def _plain(value: object, length: int | None) -> object:
    """A cell in a form that is equal for JSON, Parquet and CSV, cut to a length."""
    if length is not None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
        if len(text) > length:
            return shortened(text, length)
    if isinstance(value, str) and value[:1] in {"[", "{"}:
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return "" if value is None else value
