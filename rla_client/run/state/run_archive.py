"""Archive of the open run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.layout import ARCHIVE_TESTER, FOLDER_KINDS
from rla_client.run.current_logger import warn
from rla_client.run.state.archive import encode_archive, pack_arrays, write_archive
from rla_client.run.state.custom_data import split_custom
from rla_client.stream.param_values import plain_hyper_param

if TYPE_CHECKING:
    from rla_client.run.saved_run import SavedRun

ARCHIVE_FRAME_BYTES = 1 << 20  # larger archives are durable when the system writes them out


def archive_content(data: SavedRun) -> dict[str, Any]:
    """See `ExpManager.archive_content`."""
    item = data.item
    if item is None:
        return {}
    secrets = data.setup.secrets()
    return {
        "hyper_param": plain_hyper_param(secrets.parameters(data.setup.hyper_param)),
        "hyper_param_record": data.setup.hyper_param_record,
        "record_date": item.opened.isoformat(),
        "info": item.index.info,
        "task_table_name": item.table,
        "data_root": item.root,
        "index": item.index.path,
        "log_name_format_version": data.setup.log_name_format_version,
        "dl_framework": data.setup.dl_framework,
        "private_config": data.setup.config_to_keep(secrets),
        "dirs": {kind: item.folder(kind) for kind in FOLDER_KINDS},
        "saved_by": run_name(data),
    }


def run_name(data: SavedRun) -> str:
    """Name of the open run for the agent."""
    return data.run.opening.run if data.run is not None and data.run.opening else ""


def save_archive(data: SavedRun, kept: tuple[Any, bytes, Path | None] | None = None) -> None:
    """See `ExpManager.save_archive`.

    Args:
        data: of the run.
        kept: the custom data as just encoded, with its arrays' file.
    """
    item, run = data.item, data.run
    if item is None:
        return
    if kept is None:
        plain, parts = split_custom(data.custom.values, run_name(data))
        kept = plain, pack_arrays(parts), None
    plain, arrays, written = kept
    text = encode_archive(archive_content(data), plain)
    try:
        write_archive(item.archive_file, text, arrays, written)
    except OSError as error:
        warn(f"the archive {item.archive_file} was not written: {error.strerror or error}")
    if run is not None and len(text) < ARCHIVE_FRAME_BYTES:
        run.file(ARCHIVE_TESTER, os.path.basename(item.archive_file), text)
