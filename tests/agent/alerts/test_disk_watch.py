"""Free space of disks, of which one may hang."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.hung_folder import hung, needs_hung_folder

from rla_agent.alerts.disk_watch import DISK_LOOK_S, DiskWatch


@needs_hung_folder
def test_a_disk_that_hangs_leaves_only_its_own_space_unknown(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Also at later looks, and it is known again once it is back."""
    folders = {}
    for name in ("a", "far", "z"):
        (tmp_path / name).mkdir()
        folders[str(tmp_path / name)] = os.stat(tmp_path / name).st_dev
    far, others = str(tmp_path / "far"), {str(tmp_path / "a"), str(tmp_path / "z")}
    disks, now = DiskWatch(), 0.0
    with hung(tmp_path / "far") as server:
        wait_until(lambda: disks.look(folders, now).keys() == others)
        for _ in range(3):
            now += DISK_LOOK_S
            assert disks.look(folders, now).keys() == others
        nearer = dict.fromkeys([*others], 0)
        assert disks.look(nearer, now + DISK_LOOK_S).keys() == others
        server.come_back()

    def all_known() -> bool:
        """After another look: at the last one, the call that hung may not have returned yet."""
        nonlocal now
        now += 2 * DISK_LOOK_S
        return disks.look(folders, now).keys() == folders.keys()

    wait_until(all_known)
    assert far in disks.look(folders, now)
