"""Writer of a part's Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO

from rla_client.database.lake.manifest import MAX_RUNS

if TYPE_CHECKING:
    import pyarrow as pa


GROUP_SAMPLES = 1 << 17
GROUP_CELLS = 1 << 15  # of a row group: 160 runs of 200 rows
_MAP_KEYS = ("numbers.key_value.key", "texts.key_value.key")


def kept(table: pa.Table, places: Sequence[int], base: int) -> pa.Table:
    """Rows of some runs of a part, renumbered from `base` in the order of `places`."""
    import numpy as np
    import pyarrow as pa

    numbers = np.full(MAX_RUNS + 1, -1, dtype=np.int32)
    numbers[np.asarray(places)] = np.arange(base, base + len(places), dtype=np.int32)
    new = numbers[table["place"].to_numpy()]
    stay = pa.array(new >= 0)
    return table.set_column(0, "place", pa.array(new)).filter(stay)


def write_parquet(name: str, table: pa.Table, sink: BinaryIO) -> None:
    """Write a part's file, with a checksum of each page against damage."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=["run", "metric", "name", "step.list.element", "kind", "role", "group", *_MAP_KEYS],
        write_page_checksum=True,
    ) as writer:
        for group in in_groups(name, table):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))


def in_groups(name: str, table: pa.Table) -> Iterable[pa.Table]:
    """Row groups of a part's table, sorted for writing."""
    import numpy as np
    import pyarrow.compute as pc

    if name == "samples":
        for begin in range(0, max(table.num_rows, 1), GROUP_SAMPLES):
            yield table.slice(begin, GROUP_SAMPLES)
        return
    if name not in {"rows", "system"}:
        by = {"params": "name", "last": "metric"}.get(name)
        yield table if by is None else table.sort_by([(by, "ascending"), ("place", "ascending")])
        return
    table = table.sort_by([("metric", "ascending"), ("place", "ascending")])
    metrics = table["metric"].to_pylist()
    cells = pc.fill_null(pc.list_value_length(table["value"]), 0).to_numpy(zero_copy_only=False)
    total = np.cumsum(cells)
    begin = before = 0
    for row, metric in enumerate(metrics):
        full = total[row] - before >= GROUP_CELLS
        if (
            full
            or row + 1 == len(metrics)
            or (metrics[row + 1] != metric and total[row] - before >= GROUP_CELLS // 4)
        ):
            yield table.slice(begin, row + 1 - begin)
            begin, before = row + 1, int(total[row])
    if not metrics:
        yield table
