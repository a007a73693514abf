"""A full data root, a full state folder: the agent stays up, training goes on, everything arrives later."""

# ruff: noqa: E501
from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash.conftest import BareAgent
from crash.oracle import Trainer, check_folder, csv_seqs

from rla_agent.control import ask_status
from rla_client.places import Places

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root"),
]
RECOVERED_WITHIN_S = 10.0
CALL_P99_S = 1e-3
PACE = ("--burst", "40", "--pause", "0.02")


class SmallDisk:
    """A tmpfs of some MiB, and the file that fills it."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "rla-test", str(folder)], check=True
        )

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def full(self) -> bool:
        try:
            with (self.folder / "probe").open("ab", buffering=0) as file:
                file.write(b"x")
        except OSError as error:
            return error.errno == errno.ENOSPC
        return False

    def empty(self) -> None:
        self._ballast.unlink()
        (self.folder / "probe").unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], SmallDisk]]:
    made: list[SmallDisk] = []

    def make(folder: Path, size_mib: int) -> SmallDisk:
        folder.mkdir(exist_ok=True)
        made.append(SmallDisk(folder, size_mib))
        return made[-1]

    yield make
    for disk in made:
        disk.unmount()


def status(places: Places) -> dict[str, Any]:
    return ask_status(places)


def row_count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_times(path: Path) -> None:
    times = sorted(float(line) for line in path.read_text().splitlines())
    p50, p99, p999 = (times[int(len(times) * part)] for part in (0.5, 0.99, 0.999))
    print(
        f"{len(times)} calls: p50 {p50 * 1e6:.0f} us, p99 {p99 * 1e6:.0f} us, p99.9 {p999 * 1e6:.0f} us, max {times[-1] * 1e3:.1f} ms"
    )
    assert p99 <= CALL_P99_S


def test_full_data_root(
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    small_disk: Callable[[Path, int], SmallDisk],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    disk = small_disk(tmp_path / "disk", 6)
    bare_agent.spawn()
    times = tmp_path / "times"
    one = trainer("disk", "--segment-bytes", "262144", "--times", str(times), *PACE)
    csv = one.folder / "progress.csv"
    wait_until(lambda: row_count(csv) > 200)
    disk.fill()
    wait_until(lambda: "No space" in json.dumps(status(places)), what="a status that tells of the full disk")
    target = one.told + 2000
    wait_until(lambda: one.told > target)
    assert disk.full()
    assert bare_agent.serves()
    disk.empty()
    began, target = time.monotonic(), one.told
    wait_until(lambda: row_count(csv) > target, 30)
    seconds = time.monotonic() - began
    one.stop()
    bare_agent.drain(wait_until)
    disk.empty() if (disk.folder / "ballast").exists() else None
    rows = check_folder(one)
    print(f"{rows} rows; all there {seconds:.1f} s after space returned")
    assert seconds <= RECOVERED_WITHIN_S
    check_times(times)


def test_data_root_full_from_the_start(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    small_disk: Callable[[Path, int], SmallDisk],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    disk = small_disk(tmp_path / "disk", 6)
    disk.fill()
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    one = trainer("disk", *PACE)
    wait_until(lambda: one.told > 1000)
    disk.empty()
    one.stop()
    bare_agent.drain(wait_until)
    assert check_folder(one) > 1000


def test_full_state_folder(
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    small_disk: Callable[[Path, int], SmallDisk],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    disk = small_disk(places.state, 48)
    places.create()
    places.stopped_marker.touch()
    bare_agent.spawn()
    times = tmp_path / "times"
    one = trainer("run", "--segment-bytes", "65536", "--times", str(times), *PACE)
    csv = one.folder / "progress.csv"
    wait_until(lambda: row_count(csv) > 200)
    disk.fill()
    target = one.told + 3000
    wait_until(lambda: one.told > target)
    assert bare_agent.serves()
    disk.empty()
    began, target = time.monotonic(), one.told
    last_line = f"{target}"
    wait_until(lambda: any(seq >= int(last_line) for seq in csv_seqs(csv)[-1:]), 30)
    seconds = time.monotonic() - began
    one.stop()
    bare_agent.drain(wait_until)
    seqs = csv_seqs(csv)
    missing = sorted(set(range(one.told)) - set(seqs))
    lost = json.loads((one.folder / "run.json").read_text())["lost"]
    print(
        f"{len(seqs)} rows, {len(missing)} missing, {lost} counted as lost; going on {seconds:.1f} s after space returned"
    )
    assert seqs == sorted(set(seqs)), "rows are double or out of order"
    assert len(missing) <= lost <= len(missing) + len(missing) // 25 + 2  # lines of text count too
    assert seconds <= RECOVERED_WITHIN_S
    check_times(times)


def test_both_full_at_once(
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    small_disk: Callable[[Path, int], SmallDisk],
    wait_until: Callable[..., object],
    tmp_path: Path,
) -> None:
    """Calls go on returning, what is lost is counted, and all goes on by itself once there is space."""
    state, data = small_disk(places.state, 48), small_disk(tmp_path / "disk", 6)
    places.create()
    places.stopped_marker.touch()
    bare_agent.spawn()
    times = tmp_path / "times"
    one = trainer("disk", "--segment-bytes", "65536", "--times", str(times), *PACE)
    csv = one.folder / "progress.csv"
    wait_until(lambda: row_count(csv) > 200)
    data.fill()
    state.fill()
    target = one.told + 4000
    wait_until(lambda: one.told > target)
    assert bare_agent.serves()
    data.empty()
    state.empty()
    began, target = time.monotonic(), one.told
    wait_until(lambda: any(seq >= target for seq in csv_seqs(csv)[-1:]), 30)
    seconds = time.monotonic() - began
    one.stop()
    bare_agent.drain(wait_until)
    seqs = csv_seqs(csv)
    missing = len(set(range(one.told)) - set(seqs))
    lost = json.loads((one.folder / "run.json").read_text())["lost"]
    print(
        f"{len(seqs)} rows, {missing} missing, {lost} counted as lost; going on {seconds:.1f} s after space returned"
    )
    assert seqs == sorted(set(seqs)), "rows are double or out of order"
    assert missing <= lost <= missing + missing // 25 + 2  # lines of text count too
    assert seconds <= RECOVERED_WITHIN_S
    check_times(times)
