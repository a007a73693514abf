"""One data root's server hangs: all that is done for other roots goes on."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.hung_folder import HungFolder, needs_hung_folder

from rla_agent.outputs import file_system_lanes
from rla_agent.outputs.file_system_lanes import Lanes, disk_of
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, pack
from rla_client.run.opening_frame import make_opening
from rla_client.stream.outbox import Outbox

LOG = "log/table/run"
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:45 / /mnt/a rw - nfs4 a:/ rw
24 22 0:46 / /mnt/a\\040b rw - nfs4 b:/ rw
25 23 0:47 / /mnt/a/deep rw - fuse c rw
torn
"""


@pytest.mark.parametrize(
    ("root", "mount"),
    [
        ("/home/u", b"/"),
        ("/", b"/"),
        ("/mnt/a", b"/mnt/a"),
        ("/mnt/a/x", b"/mnt/a"),
        ("/mnt/ab", b"/"),
        ("/mnt/a b/x", b"/mnt/a b"),
        ("/mnt/a/deep/er", b"/mnt/a/deep"),
    ],
)
def test_roots_are_told_apart_by_the_mounts_in_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, mount: bytes
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(file_system_lanes, "_MOUNTS", str(tmp_path / "mountinfo"))
    assert disk_of(root, 7) == (7, mount)
    (tmp_path / "mountinfo").unlink()
    assert disk_of(root, 7) == (7, b"/")


def test_a_lane_that_hangs_is_known_and_others_go_on(wait_until: Callable[..., Any]) -> None:
    release = threading.Event()
    done: list[int] = []
    lanes = Lanes("test-lane")
    slow, quick = (1, b"/a"), (1, b"/b")

    def hang() -> None:
        release.wait(60)

    try:
        lanes.run({slow: hang, quick: partial(done.append, 1)}, 0.0)
        wait_until(lambda: lanes.hung_s(quick) is None)  # it was not waited for
        lanes.run({quick: partial(done.append, 2)}, 60.0)
        assert done == [1, 2]
        assert lanes.hung_s(quick) is None
        assert lanes.hung_s(slow) is not None
    finally:
        release.set()
    lanes.run({(2, b"/"): partial(done.append, 3)}, 60.0)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file system of its own."""
    folder = tmp_path / "far"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "far", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system of its own needs the right to mount: {done.stderr!r}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def open_run(places: Places) -> Iterator[Callable[[Path, str], Outbox]]:
    made: list[Outbox] = []

    def make(root: Path, log: str) -> Outbox:
        (root / log).mkdir(parents=True)
        opening = make_opening(root=root, folders={"log": log}, sinks=("csv",), names={}, item={})
        made.append(Outbox(places, opening, AgentConfig(autostart=False)))
        return made[-1]

    yield make
    for outbox in made:
        outbox.close("finished", "")


def put(outbox: Outbox, step: int) -> None:
    now = time.time()
    assert outbox.put(FrameKind.ROW, pack([step, now, {"v": step}]), now, 1)


@pytest.mark.slow
@needs_hung_folder
def test_a_root_that_hangs_holds_up_no_other(
    new_agent: Callable[..., Any],
    mounted: Path,
    tmp_path: Path,
    open_run: Callable[[Path, str], Outbox],
    wait_until: Callable[..., Any],
) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("AGENT: {sample_interval_s: 0.05}\n")
    agent = new_agent("--config", str(config)).start()
    near = tmp_path / "near"
    far_run, near_run = open_run(mounted, LOG), open_run(near, LOG)
    for outbox in (far_run, near_run):
        put(outbox, 0)
        assert outbox.flush(60)
    samples = near / LOG / "system.csv"
    wait_until((mounted / LOG / "system.csv").exists, what="a sample of the far run")
    server = HungFolder(mounted)
    server.hang()
    try:
        put(far_run, 1)
        named = f"with {mounted}"
        wait_until(lambda: named in str(agent.status()["problems"]), what="the root that hangs, in status")
        wait_until(lambda: f"runs in {mounted}" in str(agent.status()["problems"]), what="samples that fail")
        size = samples.stat().st_size
        put(near_run, 1)
        assert near_run.flush(60)
        wait_until(lambda: samples.stat().st_size > size, what="samples of the other root")
        later = open_run(near, "log/table/later")
        put(later, 0)
        assert later.flush(60)
        later.close("finished", "")
        states = {run["log_folder"]: run["state"] for run in agent.status()["runs"]}
        assert states[os.fspath(near / LOG)] == "running"
        wait_until(
            lambda: (
                {run["state"] for run in agent.status()["runs"] if "later" in run["log_folder"]}
                == {"finished"}
            ),
            what="the end of the later run",
        )
    finally:
        server.come_back()
    wait_until(lambda: far_run.flush(5), what="the rows of the root that came back")
    assert len((mounted / LOG / "progress.csv").read_text().splitlines()) == 3


@pytest.mark.slow
@needs_hung_folder
def test_a_stream_that_is_found_while_its_root_hangs_is_named_and_holds_up_no_other(
    new_agent: Callable[..., Any],
    tmp_path: Path,
    open_run: Callable[[Path, str], Outbox],
    wait_until: Callable[..., Any],
) -> None:
    """Also where its device number is that of another file system, as after a boot."""
    far = tmp_path / "other"
    far_run = open_run(far, LOG)
    server = HungFolder(far)
    server.hang()
    try:
        put(far_run, 0)
        agent = new_agent().start()
        wait_until(lambda: f"with {far}" in str(agent.status()["problems"]), what="the root, in status")
        near_run = open_run(tmp_path / "near", LOG)
        put(near_run, 0)
        assert near_run.flush(60)
    finally:
        server.come_back()
    wait_until(lambda: far_run.flush(5), what="the rows of the root that came back")
