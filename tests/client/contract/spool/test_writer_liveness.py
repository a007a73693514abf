"""Whether a stream's writer lives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until

from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import writer_alive
from rla_client.stream.segment_writer import SegmentWriter


def opening(number: int, rows: int) -> bytes:
    return encode_frame(FrameKind.OPEN, pack({"segment": number, "rows": rows}))


@pytest.fixture
def writer(tmp_path: Path) -> SegmentWriter:
    return SegmentWriter(tmp_path, opening)


def test_lock_says_whether_the_writer_lives(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\nfrom rla_client.stream.segment_writer import SegmentWriter\n"
        "w = SegmentWriter(pathlib.Path(sys.argv[1]), lambda n, r: b'x')\nprint(w.name, flush=True)\nsys.stdin.read()"  # noqa: E501
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder = tmp_path / process.stdout.readline().strip()
        assert stream_names(tmp_path) == [folder.name]
        assert writer_alive(folder)
        process.kill()
        process.wait()
    assert not writer_alive(folder)


def test_a_writer_is_taken_for_alive_when_that_cannot_be_found_out(
    writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_arguments: object, **_options: object) -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(os, "open", exhausted)
    assert writer_alive(writer.folder)


def test_a_lost_lock_does_not_make_a_living_writer_dead(places: Places) -> None:
    """Anything in the process that opens and closes the lock file drops a POSIX lock."""
    code = (
        "import sys, shutil; from pathlib import Path\n"
        "from rla_client.stream.segment_writer import SegmentWriter\n"
        "spool = Path(sys.argv[1])\n"
        "writer = SegmentWriter(spool, lambda number, rows: b'x')\n"
        "(writer.folder / 'lock').read_bytes()\n"
        "print(writer.folder, flush=True); sys.stdin.readline()\n"
        "writer.close(); print('closed', flush=True); sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(places.spool)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    folder = Path(process.stdout.readline().strip())
    assert writer_alive(folder)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "closed\n"
    assert not writer_alive(folder)
    process.communicate("\n")


def test_a_writer_whose_descriptors_were_closed_lives_until_its_program_ends(places: Places) -> None:
    """The agent must not end a stream in which the next record goes on. `exec` ends the program."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from rla_client.stream.segment_writer import SegmentWriter\n"
        "writer = SegmentWriter(Path(sys.argv[1]), lambda number, rows: b'x')\n"
        "os.closerange(3, 1 << 16)\n"
        "print(writer.folder, flush=True); sys.stdin.readline()\n"
        "os.execv('/bin/sh', ['sh', '-c', 'echo another; read line'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(places.spool)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    folder = Path(process.stdout.readline().strip())
    assert writer_alive(folder)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "another\n"
    assert not writer_alive(folder)
    process.communicate("\n")


WRITER = """
import os, sys, time
from pathlib import Path
from rla_client.stream.segment_writer import SegmentWriter
writer = SegmentWriter(Path(sys.argv[1]), lambda number, rows: b"x")
lock = writer.folder / "lock"
"""
LOST = {
    "nothing": "",
    "its lock": "lock.read_bytes()\n",  # closing a descriptor lets go of it
    "its lock's file": "lock.unlink()\n",
    "its lock to a copy": "data = lock.read_bytes(); lock.unlink(); lock.write_bytes(data)\n",
}


def alive_until_killed(code: str, places: Places, *command: str) -> None:
    """Start a writer, see that it counts as alive while it lives, and as dead soon after."""
    process = subprocess.Popen(
        [*command, sys.executable, "-c", WRITER + code, str(places.spool)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        for _ in range(3):
            assert writer_alive(folder)
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: writer_alive(folder) is False)


@pytest.mark.parametrize("lost", [*LOST, "its descriptors"])
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a pid namespace needs root")
def test_a_writer_in_another_pid_namespace(places: Places, lost: str) -> None:
    """As in a container that shares the state folder: its process number means nothing here."""
    closes = "os.closerange(3, 1 << 16)\n"  # the next record opens them again
    code = (
        LOST.get(lost, closes)
        + "assert os.getpid() < 10; print(writer.folder, flush=True); time.sleep(600)\n"
    )
    alive_until_killed(code, places, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("kept", [True, False])
def test_a_writer_that_execs(places: Places, lost: str, kept: bool) -> None:
    """A program that inherits the segment may still write; one that does not is another program."""
    inherit = "os.set_inheritable(writer._descriptor, True); os.set_inheritable(writer._lock, True)\n"
    code = (
        f"{LOST[lost]}{inherit if kept else ''}"
        "os.execv('/bin/sh', ['sh', '-c', f'echo {writer.folder}; exec sleep 600'])\n"
    )
    if kept:
        alive_until_killed(code, places)
        return
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER + code, str(places.spool)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        wait_until(lambda: writer_alive(folder) is False)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_a_killed_writer_without_lock_is_dead_also_as_a_zombie(places: Places) -> None:
    code = (
        "import sys; from pathlib import Path; from rla_client.stream.segment_writer import SegmentWriter\n"
        "writer = SegmentWriter(Path(sys.argv[1]), lambda number, rows: b'x')\n"
        "(writer.folder / 'lock').read_bytes()\n"
        "print(writer.folder, flush=True); sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(places.spool)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    process.kill()
    wait_until(lambda: not writer_alive(folder))  # not reaped yet
    process.communicate()
