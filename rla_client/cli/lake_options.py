"""Options of commands over a lake in a bucket."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from rla_client.contract.errors import DatabaseError

Bucket = Annotated[
    str, typer.Option("--bucket", help="Use the lake in a bucket: s3://bucket/prefix, gs://… or az://…")
]
Endpoint = Annotated[str, typer.Option("--endpoint", help="Address of a store that is not the vendor's own.")]


def need_pyarrow() -> None:
    """Raise DatabaseError if pyarrow, which a lake needs, is not installed."""
    if find_spec("pyarrow") is None:
        raise DatabaseError("the lake needs pyarrow: pip install 'rla-agent[lake]'")
