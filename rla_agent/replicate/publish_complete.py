"""Publication of sharded saves that are complete here."""

from __future__ import annotations

import os
from pathlib import Path

from rla_agent.replicate.worker.scan import Scanner, ScanScope
from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.sharded_checkpoint.files import folder_name
from rla_client.contract.sharded_checkpoint.publish import publish_all


def publish_complete(data_root: Path) -> list[str]:
    """Publish sharded saves of which all parts are here; their paths below the data root.

    Raises:
        OSError: one could not be published.
    """
    root, published = os.fsencode(os.path.abspath(data_root)), []
    for folder in Scanner(root, ScanScope(host="", kinds=(CHECKPOINT,))).everything():
        if folder.item and folder.path == folder.item:
            here = os.fsdecode(folder.path)
            done = [whole.save for whole in publish_all(Path(os.fsdecode(root), here))]
            published += [f"{here}/{folder_name(save.name, save.step)}" for save in done]
    return published
