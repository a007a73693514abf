"""Read access to a database.

`open(data_root)` is the entry point.

Everything is imported at first use, so that a command that needs little starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from rla_client.database.database import Database

_QUERY = (
    "HyperParams", "experiment_data_query", "single_experiment_query", "extract_valid_index",
    "BasicQueryResult", "ArchiveQueryResult", "LogQueryResult", "HyperParamResult", "CkpResult",
    "OtherQueryResult",
)  # fmt: skip
_TOOLS = ("DeleteLogTool", "ArchiveLogTool", "MigrateLogTool", "ViewLogTool", "PrettyPlotterTool", "Filter")
_HOMES = {
    "Database": "database",
    "Run": "run",
    "Record": "records.record",
    **dict.fromkeys(_QUERY, "query"),
    **dict.fromkeys(_TOOLS, "rla_tools"),
}
__all__ = ["open", *_HOMES]  # noqa: PLE0604 - plain text


def open(data_root: str | os.PathLike[str]) -> Database:  # noqa: A001 - rla_client.database.open(…) is the name
    """Open the database in a data root (the folder that holds log/).

    Raises:
        DatabaseError: it is not a folder.
    """
    from rla_client.database.database import Database

    return Database(data_root)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
