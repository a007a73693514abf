"""Tables that grow: read on from where they were left, and anew where they are not what they were."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from rla_client.database.curves.progress_csv import TablePart, read_part, recorded_nan
from rla_client.web import growing_cache
from rla_client.web.growing_cache import GrowingCache

HEAD = "return,time-step,timestamp\n"


def row(step: int) -> str:
    return f"{step * 0.5},{step},{1000.0 + step}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.csv"


@pytest.fixture
def cache(tmp_path: Path) -> GrowingCache:
    return GrowingCache(tmp_path / "state")


def values(cache: GrowingCache, path: Path, name: str = "return") -> list[float]:
    just_written = path.stat().st_mtime_ns  # however long ago that is: a settled table is read another way
    found: list[float] = cache.columns(str(path), [name], just_written)[name].tolist()
    return found


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_new_rows_alone_are_parsed(cache: GrowingCache, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(HEAD + "".join(map(row, range(5))))
    assert values(cache, path) == [0.0, 0.5, 1.0, 1.5, 2.0]
    starts = []

    def watched(where: str, names: list[str], after: TablePart | None = None) -> TablePart:
        part = read_part(where, names, after)
        starts.append(part.start)
        return part

    monkeypatch.setattr(growing_cache, "read_part", watched)
    size = path.stat().st_size
    append(path, row(5) + "3.0,6")  # and half a row
    assert values(cache, path) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    append(path, ",1006.0\n")
    assert values(cache, path)[-1] == 3.0
    assert starts == [size, size + len(row(5))]


def test_what_was_given_does_not_change_later(cache: GrowingCache, path: Path) -> None:
    path.write_text(HEAD + row(1))
    first = cache.columns(str(path), ["return"], time.time_ns())["return"]
    append(path, "".join(map(row, range(2, 5000))))
    assert len(values(cache, path)) == 4999
    assert first.tolist() == [0.5]


def test_a_table_that_was_cut_and_went_on_is_read_anew(cache: GrowingCache, path: Path) -> None:
    path.write_text(HEAD + "".join(map(row, range(10))))
    assert len(values(cache, path)) == 10
    with path.open("r+") as file:  # the same file, as a resume leaves it, longer than it was
        file.truncate(len(HEAD) + 4 * len(row(1)))
    append(path, "".join(f"{step * 100.0},{step},{step}\n" for step in range(4, 40)))
    found = values(cache, path)
    assert found[:4] == [0.0, 0.5, 1.0, 1.5]
    assert found[-1] == 3900.0


def test_a_shorter_table_is_read_anew(cache: GrowingCache, path: Path) -> None:
    path.write_text(HEAD + "".join(map(row, range(10))))
    assert len(values(cache, path)) == 10
    path.write_text(HEAD + row(7))
    assert values(cache, path) == [3.5]


def test_a_column_that_comes_later(cache: GrowingCache, path: Path, tmp_path: Path) -> None:
    path.write_text(HEAD + row(1))
    assert "loss" not in cache.columns(str(path), ["return", "loss"], time.time_ns())
    wider = tmp_path / "new"
    wider.write_text("return,time-step,timestamp,loss\n0.5,1,1001.0,\n1.0,2,1002.0,9.5\n")
    os.replace(wider, path)
    found = cache.columns(str(path), ["return", "loss"], time.time_ns())
    assert found["return"].tolist() == [0.5, 1.0]
    assert np.isnan(found["loss"][0])
    assert found["loss"][1] == 9.5


def test_another_column_of_a_known_table(cache: GrowingCache, path: Path) -> None:
    path.write_text(HEAD + row(1))
    assert values(cache, path) == [0.5]
    append(path, row(2))
    assert values(cache, path, "time-step") == [1.0, 2.0]
    assert values(cache, path) == [0.5, 1.0]


def test_old_tables_give_way(cache: GrowingCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        growing_cache, "MAX_KEPT_BYTES", 20_000
    )  # two tables of FIRST_ROOM rows of one column
    for number in range(5):
        one = tmp_path / f"{number}.csv"
        one.write_text(HEAD + row(number))
        assert values(cache, one) == [number * 0.5]
    kept = cache._tables
    assert [os.path.basename(name) for name in kept] == ["3.csv", "4.csv"]
    assert values(cache, tmp_path / "0.csv") == [0.0]


@pytest.mark.parametrize("rows", [3, 5000])
def test_a_nan_that_was_recorded_is_told_from_nothing(path: Path, rows: int) -> None:
    """By the csv module and by pandas alike; and the column cache keeps it."""
    path.write_text("a,b\n" + "1.5,2\n" * rows + "nan,2\n,2\n-inf,2\nNaN,2\nNA,2\n")
    column = read_part(path, ["a"]).columns["a"]
    assert recorded_nan(column)[rows:].tolist() == [True, False, False, True, False]
    assert np.isnan(column[rows:]).tolist() == [True, True, False, True, True]
    os.utime(path, (1, 1))
    cache = GrowingCache(path.parent / "state")
    for _ in range(2):
        cached = cache.columns(str(path), ["a"], time.time_ns() + 10**11)["a"]
        assert recorded_nan(cached).tolist() == recorded_nan(column).tolist()
