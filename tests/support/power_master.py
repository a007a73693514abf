"""A master whose disk loses its power: an sshd that writes to an ext4 of its own."""

from __future__ import annotations

import os
from pathlib import Path

from rla_agent.replicate.status import replication_status
from support.loop_disk import CANARY, NO_FLUSH, LoopDisk
from support.replication_lab import Node, Sshd, items_only, tree
from support.waiting import wait_until

NO_FSYNC = "internal-sftp -P fsync"


class PowerMaster:
    """`cut` takes the power of disk and server and brings both back."""

    def __init__(self, disk: LoopDisk, folder: Path, *, sftp: str = "internal-sftp") -> None:
        self.disk = disk
        self.server = Sshd(folder, sftp=sftp).start()
        self.root = disk.folder / "master"
        self.root.mkdir()
        (self.root / "README").write_text("so that it is never empty\n")
        os.sync()
        self.cuts = 0

    def remote(self) -> dict[str, object]:
        """REMOTE_SETTING for it."""
        return self.server.remote(remote_data_root=str(self.root))

    def cut(self) -> None:
        """Lose everything that is not on the disk."""
        canary = self.disk.put_canary(self.cuts)
        self.disk.shut_down(NO_FLUSH)
        self.server.stop()
        wait_until(self.disk.unmount, 30, "unmounting after the cut")
        self.disk.mount()
        content = canary.read_bytes() if canary.exists() else b""
        assert content != CANARY, "what was never synced survived: this is no power cut"
        canary.unlink(missing_ok=True)
        assert self.disk.errors() == 0, "this disk lies: no master has to bear a damaged file system"
        self.cuts += 1

    def differences(self, node: Node) -> list[str]:
        """Paths that are here and not the same there."""
        here, there = items_only(tree(node.root)), items_only(tree(self.root))
        return sorted(path for path, digest in here.items() if there.get(path) != digest)


def waiting(node: Node) -> int:
    """Files that wait; one where nothing is known yet."""
    targets = replication_status(node.state)["targets"]
    return sum(kind["files"] for kind in targets[0]["backlog"].values()) if targets else 1


def wait_for_nothing(node: Node, master: PowerMaster, timeout_s: float) -> None:
    """Until all is there and status says that nothing waits."""
    wait_until(
        lambda: not waiting(node) and not master.differences(node),
        timeout_s,
        lambda: f"nothing waiting; {master.differences(node)}; {node.log()[-3000:]}",
    )
