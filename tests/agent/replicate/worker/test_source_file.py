"""Opening what is sent, below the data root only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.replication_lab import ITEM, Node


def test_a_folder_swapped_for_a_link_leads_nowhere(node: Node, tmp_path: Path) -> None:
    from rla_agent.replicate.worker.source_file import open_beneath

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    folder = node.item("results") / "sub"
    folder.symlink_to(outside)
    root = os.open(node.root, os.O_RDONLY)
    try:
        for path in (f"results/{ITEM}/sub/f", "../outside/f", "/etc/passwd"):
            with pytest.raises(OSError, match=r"Errno"):
                open_beneath(root, path.encode())
    finally:
        os.close(root)
