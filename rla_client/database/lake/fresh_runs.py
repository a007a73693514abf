"""Runs with outdated rows in the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rla_client.contract.run_file import LIVE_STATES
from rla_client.database.catalogue import Signed
from rla_client.database.lake.lake_reader import RunName

if TYPE_CHECKING:
    import pyarrow as pa


def compare(
    signed: Sequence[Signed], links: Mapping[RunName, str], held: pa.Array, held_signature: pa.Array
) -> tuple[pa.Array, list[RunName]]:
    """Compare the runs in the lake with the catalogue, by columns, as there may be 100,000 runs.

    Args:
        signed: result of `Catalogue.refresh`.
        links: result of `Catalogue.links`.
        held: `<table>/<index>` of the runs in the lake.
        held_signature: their signatures.

    Returns:
        `<table>/<index>` of the outdated runs in the lake; runs to be read from their files.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table, index, signature, state = (
        pa.array([run[column] for run in signed], pa.string()) for column in range(4)
    )
    run = pc.binary_join_element_wise(table, index, "/")
    is_same = pc.equal(pc.take(held_signature, pc.index_in(run, value_set=held)), signature)
    continued = pc.is_in(run, value_set=_runs((table, parent) for (table, _), parent in links.items()))
    unfit = pc.is_in(state, value_set=pa.array(sorted(LIVE_STATES)))
    for other in (pc.is_in(run, value_set=_runs(links)), continued):
        unfit = pc.or_(unfit, other)
    good = pc.and_not(pc.fill_null(is_same, fill_value=False), unfit)
    fresh = pc.invert(pc.or_(good, continued))
    columns = (column.filter(fresh).to_pylist() for column in (table, index))
    stale = held.filter(pc.invert(pc.is_in(held, value_set=run.filter(good))))
    return stale, list(zip(*columns, strict=True))


def _runs(names: Iterable[RunName]) -> pa.Array:
    import pyarrow as pa

    return pa.array([f"{table}/{index}" for table, index in names], pa.string())
