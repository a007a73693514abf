"""A full data root, a full state folder: the agent stays up, training goes on, everything arrives later."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash.conftest import Bench
from support.alert_receivers import HookServer, hooked, serving
from support.oracle import Trainer, check_folder, csv_seqs

from rla_agent.service.control_client import ask_status

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root"),
]
CALL_P50_S = 1e-3  # what waits for a disk waits longer
CALL_P99_S = 0.05  # waiting for a turn to run on a busy machine; 1 ms on a machine of its own
PACE = ("--burst", "40", "--pause", "0.02")
MakeDisk = Callable[[Path, int], "SmallDisk"]


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
        """Whether not even a page is free; takes one each time that it is."""
        try:
            with (self.folder / "probe").open("ab", buffering=0) as file:
                file.write(b"x" * 4096)
        except OSError as error:
            return error.errno == errno.ENOSPC
        return False

    def empty(self) -> None:
        self._ballast.unlink()
        (self.folder / "probe").unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def small_disk() -> Iterator[MakeDisk]:
    made: list[SmallDisk] = []

    def make(folder: Path, size_mib: int) -> SmallDisk:
        folder.mkdir(exist_ok=True)
        made.append(SmallDisk(folder, size_mib))
        return made[-1]

    yield make
    for disk in made:
        disk.unmount()


@pytest.fixture
def state_disk(bench: Bench, small_disk: MakeDisk) -> SmallDisk:
    """A small disk that holds the state folder."""
    disk = small_disk(bench.places.state, 48)
    bench.places.create()
    bench.places.stopped_marker.touch()
    return disk


def start(bench: Bench, name: str, segment_bytes: int) -> Trainer:
    """Start agent and training, and wait for rows in the file."""
    bench.agent.spawn()
    one = bench.train(name, "--segment-bytes", str(segment_bytes), "--times", str(bench.times), *PACE)
    bench.wait_until(lambda: seqs_of(one)[-1:] > [200])
    return one


def seqs_of(one: Trainer) -> list[int]:
    """Of the rows in the CSV of a run."""
    path = one.folder / "progress.csv"
    return csv_seqs(path) if path.exists() else []


def train_on(bench: Bench, one: Trainer, rows: int) -> None:
    """Calls go on returning, and the agent goes on answering."""
    bench.train_on(one, rows)
    assert bench.agent.serves()


def told(bench: Bench, text: str) -> int:
    """How many lines of the agent's log say so."""
    return sum(text in line for line in bench.places.log.read_text().splitlines())


def recover(bench: Bench, one: Trainer, *disks: SmallDisk) -> None:
    """Once there is space again, all goes on by itself; then end."""
    for disk in disks:
        disk.empty()
    began, target = time.monotonic(), one.told
    there = f"row {target} in the file"
    bench.wait_until(lambda: seqs_of(one)[-1:] >= [target], what=there)
    seconds = time.monotonic() - began
    bench.end(one)
    print(f"going on {seconds:.1f} s after space returned")


def tell_times(path: Path) -> tuple[float, float]:
    """How long half of the calls took at most, and 99 of 100, in seconds."""
    times = sorted(float(line) for line in path.read_text().splitlines())
    p50, p99, p999 = (times[int(len(times) * part)] for part in (0.5, 0.99, 0.999))
    print(
        f"{len(times)} calls: p50 {p50 * 1e6:.0f} us, p99 {p99 * 1e6:.0f} us, p99.9 {p999 * 1e6:.0f} us, "
        f"max {times[-1] * 1e3:.1f} ms"
    )
    return p50, p99


def check_losses(one: Trainer) -> None:
    """Rows are once and in order, and each that is missing is counted as lost."""
    seqs = seqs_of(one)
    missing = len(set(range(one.told)) - set(seqs))
    lost = json.loads((one.folder / "run.json").read_text())["lost"]
    print(f"{len(seqs)} rows, {missing} missing, {lost} counted as lost")
    assert seqs == sorted(set(seqs)), "rows are double or out of order"
    assert lost == missing


@pytest.mark.slow
def test_full_data_root(bench: Bench, small_disk: MakeDisk) -> None:
    disk = small_disk(bench.folder / "disk", 6)
    one = start(bench, "disk", 1 << 18)
    disk.fill()
    bench.wait_until(
        lambda: "No space" in json.dumps(ask_status(bench.places)),
        what="a status that tells of the full disk",
    )
    train_on(bench, one, 2000)
    bench.wait_until(disk.full, what="a full disk")  # a file that the agent gave up may have left a little
    assert 1 <= told(bench, "No space left on device") <= 3, "the fault, not each try"
    recover(bench, one, disk)
    tell_times(bench.times)
    print(f"{check_folder(one)} rows, all there")


@pytest.mark.slow
def test_data_root_full_from_the_start(bench: Bench, small_disk: MakeDisk) -> None:
    disk = small_disk(bench.folder / "disk", 6)
    disk.fill()
    bench.serve()
    one = bench.train("disk", *PACE)
    bench.train_on(one, 1000)
    disk.empty()
    bench.end(one)
    assert check_folder(one) > 1000


@pytest.mark.slow
def test_no_inodes_are_left_in_the_data_root(bench: Bench, small_disk: MakeDisk) -> None:
    """Only run.json is a new file each time: it waits, and is told of once."""
    disk = small_disk(bench.folder / "disk", 6)
    subprocess.run(["mount", "-o", "remount,nr_inodes=200", str(disk.folder)], check=True)
    one = start(bench, "disk", 1 << 18)
    files = disk.folder / "many"
    files.mkdir()
    with contextlib.suppress(OSError):
        for number in range(1000):
            (files / str(number)).touch()
    one.stop()
    bench.wait_until(lambda: "cannot write run.json" in json.dumps(ask_status(bench.places)))
    bench.wait_until(lambda: told(bench, "cannot write run.json") > 0, what="a line in the log")
    bench.wait_until(lambda: told(bench, "serving") == 1)
    shutil.rmtree(files)
    bench.end(one)
    assert told(bench, "cannot write run.json") == 1
    assert json.loads((one.folder / "run.json").read_text())["state"] == "finished"


@pytest.mark.slow
def test_full_state_folder(bench: Bench, state_disk: SmallDisk) -> None:
    one = start(bench, "run", 1 << 16)
    state_disk.fill()
    train_on(bench, one, 3000)
    recover(bench, one, state_disk)
    tell_times(bench.times)
    check_losses(one)


@pytest.mark.further
@pytest.mark.slow
def test_alerts_on_a_full_state_folder_go_out_once(bench: Bench, state_disk: SmallDisk) -> None:
    """One waits as the server refuses it, the disk fills, the server accepts: that it was sent is noted."""
    with serving(HookServer()) as hook:
        hook.answers += [(503, {})] * 2
        config = hooked(bench.folder / "project", "- {when: killed, send: chat}", hook.url)
        bench.agent.spawn(config=config)
        one = bench.train("run", *PACE)
        bench.wait_until(lambda: seqs_of(one)[-1:] > [10])
        one.process.kill()
        bench.wait_until(lambda: hook.tries)
        state_disk.fill()
        bench.wait_until(lambda: hook.posts, 60, what="the third try")
        bench.wait_until(lambda: not ask_status(bench.places)["alerts"]["waiting"], what="a note of it")
        tries = hook.tries
        bench.wait_until(lambda: ask_status(bench.places)["agent"]["uptime_s"] > 12, 60)
        assert (tries, hook.tries, len(hook.posts)) == (3, 3, 1)
        state_disk.empty()


def fill_both(
    bench: Bench, small_disk: MakeDisk, state_disk: SmallDisk, rows: int, disk_mib: int = 6
) -> tuple[float, float]:
    """Calls go on returning, what is lost is counted, and all goes on by itself once there is space."""
    disk = small_disk(bench.folder / "disk", disk_mib)
    one = start(bench, "disk", 1 << 16)
    disk.fill()
    state_disk.fill()
    train_on(bench, one, rows)
    recover(bench, one, disk, state_disk)
    check_losses(one)
    return tell_times(bench.times)


@pytest.mark.slow
def test_both_full_at_once(bench: Bench, small_disk: MakeDisk, state_disk: SmallDisk) -> None:
    fill_both(bench, small_disk, state_disk, 4000)


@pytest.mark.soak
def test_calls_take_no_longer_while_both_are_full(
    bench: Bench, small_disk: MakeDisk, state_disk: SmallDisk
) -> None:
    p50, p99 = fill_both(bench, small_disk, state_disk, 40_000, disk_mib=128)  # 260 bytes a row
    assert p50 <= CALL_P50_S
    assert p99 <= CALL_P99_S
