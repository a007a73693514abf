"""Tables whose rows become samples, without a run of the module around them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rla_client import logger
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.integrations.wandb.sample_tables import SampleTables
from rla_client.integrations.wandb.values import Image, Table
from rla_client.run.record.run_logger import Logger

COLUMNS = ["step", "prompt", "completion", "reward", "seen"]


@pytest.fixture(autouse=True)
def current(run: Any) -> Iterator[None]:
    logger.set_current(Logger(str(run.results.parent), (), run.outbox))
    yield
    logger.set_current(None)


def _completions(run: Any) -> list[str]:
    (segment,) = run.outbox.stream_folder.glob("*.seg")
    frames = [frame for frame in iter_frames(segment.read_bytes()) if frame.kind == FrameKind.SAMPLES]
    return [unpack(row)["completion"] for frame in frames for row in unpack(frame.payload)[4]]


def _log(tables: SampleTables, *rows: list[Any]) -> None:
    table = Table(columns=COLUMNS, data=rows)
    tables.log("val/generations", table, 1, table)


def _image() -> Image:
    return Image(np.zeros((4, 4), np.uint8))


def test_rows_with_pictures_are_known_again(run: Any) -> None:
    tables = SampleTables({})
    for _ in range(2):
        _log(
            tables,
            [1, "p", "b", float("nan"), _image()],
            [1, "p", "a", 1.0, [{"image": _image()}, np.ones(3)]],
        )
    _log(tables, [2, "p", "c", 0.5, _image()], [1, "p", "a", 1.0, [{"image": _image()}, np.ones(3)]])
    _log(tables, [2, "p", "c", "0.5", _image()], [np.int64(3), "p", "c", 0.5, _image()])
    assert _completions(run) == ["b", "a", "c", "c", "c"]


def test_no_cell_is_held(run: Any) -> None:
    tables, image = SampleTables({}), _image()
    held = weakref.ref(image)
    _log(tables, [1, "p", "a", 1.0, image])
    del image
    gc.collect()
    assert held() is None
    assert _completions(run) == ["a"]


def test_of_a_table_that_grew_the_earlier_rows_are_known_too(run: Any) -> None:
    tables = SampleTables({})
    first, second = [1, "p", "a", 1.0, None], [2, "p", "b", 1.0, None]
    _log(tables, first)
    grown = Table(columns=COLUMNS, data=[first, second])
    tables.log("val/generations", Table(columns=COLUMNS, data=[second]), 2, grown)
    _log(tables, [3, "p", "c", 1.0, None], second, first)
    assert _completions(run) == ["a", "b", "c"]


def test_a_list_that_contains_itself_is_a_cell(run: Any) -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    tables = SampleTables({})
    for _ in range(2):
        _log(tables, [1, "p", "a", 1.0, endless])
    assert _completions(run) == ["a"]


def test_numbers_and_arrays_of_numpy_are_cells(run: Any) -> None:
    tables = SampleTables({})
    _log(tables, [np.int64(3), "p", "a", np.float32(0.5), np.array([1, 2])])
    (segment,) = run.outbox.stream_folder.glob("*.seg")
    frames = [frame for frame in iter_frames(segment.read_bytes()) if frame.kind == FrameKind.SAMPLES]
    name, step, _, _, rows = unpack(frames[0].payload)
    wanted = {"prompt": "p", "completion": "a", "reward": 0.5, "seen": [1, 2]}
    assert (name, step, [unpack(row) for row in rows]) == ("eval", 3, [wanted])


def test_trajectories_are_completions(run: Any) -> None:
    tables = SampleTables({})
    rows = [[4, n / 2, 1, f"[USER]\nq\n\n[ASSISTANT]\na{n}"] for n in range(2)]
    table = Table(columns=["step", "reward", "num_turns", "trajectory"], data=rows)  # of SkyRL
    tables.log("trajectories/train", table, 9, table)
    assert _completions(run) == [row[3] for row in rows]
