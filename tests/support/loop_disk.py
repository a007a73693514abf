"""A disk of our own that can lose its power or freeze: ext4 on a loop device, mounted below a test's folder.

`cut` is what a power cut leaves: EXT4_IOC_SHUTDOWN stops the file system at once, and the next mount
replays the journal. NO_FLUSH throws away all that was not synced, JOURNAL writes the journal out first
(names without content), ALL writes everything out.

Only file systems made here are ever frozen or shut down, and each is thawed and unmounted at the end.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EXT4_IOC_SHUTDOWN = 0x8004587D
BLKFLSBUF = 0x1261
ALL, JOURNAL, NO_FLUSH = 0, 1, 2
TOOLS = ("mkfs.ext4", "losetup", "mount", "umount", "fsfreeze")
CANARY = b"this was never synced\n" * 200

needs_loop_disk = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in TOOLS),
    reason="mounting an ext4 of its own needs root, mkfs.ext4 and fsfreeze",
)


class LoopDisk:
    """An ext4 of `size_mib` MiB, mounted at `folder`."""

    def __init__(self, folder: Path, size_mib: int = 128) -> None:
        self.folder = folder
        self._timer: threading.Timer | None = None
        folder.mkdir()
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(folder.parent)
        with tempfile.NamedTemporaryFile(prefix="rla-disk-", dir=where) as file:
            file.truncate(size_mib << 20)
            subprocess.run(["mkfs.ext4", "-q", "-F", file.name], check=True)
            attached = subprocess.run(
                ["losetup", "--find", "--show", file.name], check=False, capture_output=True, text=True
            )
        if attached.returncode:
            pytest.skip(f"no loop device can be had here: {attached.stderr.strip()}")
        self.device = attached.stdout.strip()  # from here on it alone holds the image, which has no name
        self._held = os.open(self.device, os.O_RDONLY | os.O_CLOEXEC)
        subprocess.run(["losetup", "--detach", self.device], check=True)  # once we let go of it, or die
        self.mount()

    def mount(self) -> None:
        """Mount it as a machine does that just booted: with nothing of the device in memory.

        We hold the device open, so its cache outlives the unmounting, with metadata that was changed
        and never written; a mount that believed it would be of a damaged file system.
        """
        fcntl.ioctl(self._held, BLKFLSBUF)
        subprocess.run(["mount", self.device, str(self.folder)], check=True)

    def errors(self) -> int:
        """What the kernel found wrong with the file system itself: then nothing here means anything."""
        return int(Path("/sys/fs/ext4", Path(self.device).name, "errors_count").read_text())

    def shut_down(self, flag: int) -> None:
        """Stop the file system as a power cut would: every later call on it fails."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(descriptor)

    def unmount(self) -> bool:
        """Whether it is unmounted now; False while a process holds it."""
        if self._mounted():
            subprocess.run(["umount", str(self.folder)], check=False, capture_output=True)
        return not self._mounted() and self._free()

    def _free(self) -> bool:
        """Whether the kernel let go of it: a mount namespace that somebody made meanwhile has a copy."""
        try:
            os.close(os.open(self.device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def _mounted(self) -> bool:
        """Asked of the kernel's list: a file system that is shut down cannot be asked itself."""
        with open("/proc/self/mounts", encoding="utf-8") as file:
            return any(line.split(" ")[1] == str(self.folder) for line in file)

    def put_canary(self, number: int) -> Path:
        """Write a file and sync nothing."""
        path = self.folder / f"canary-{number}"
        path.write_bytes(CANARY)
        return path

    def freeze(self, *, at_most_s: float) -> None:
        """Freeze it; a timer thaws it when the test does not."""
        self._timer = threading.Timer(at_most_s, self.thaw)
        self._timer.daemon = True
        self._timer.start()
        subprocess.run(["fsfreeze", "--freeze", str(self.folder)], check=True)

    def thaw(self) -> None:
        """Thaw it; nothing when it is not frozen."""
        if self._timer is not None:
            self._timer.cancel()
        subprocess.run(["fsfreeze", "--unfreeze", str(self.folder)], check=False, capture_output=True)

    def remove(self) -> None:
        """Thaw and unmount; the loop device goes when nobody holds it any more."""
        self.thaw()
        if not self.unmount() and self._mounted():
            subprocess.run(["umount", "-l", str(self.folder)], check=False)
        os.close(self._held)


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[Callable[..., LoopDisk]]:
    """`loop_disk(name, size_mib)` mounts a new ext4 at `tmp_path/name`; gone at the end."""
    made: list[LoopDisk] = []

    def make(name: str = "disk", size_mib: int = 128) -> LoopDisk:
        made.append(LoopDisk(tmp_path / name, size_mib))
        return made[-1]

    try:
        yield make
    finally:
        for disk in made:
            disk.remove()
