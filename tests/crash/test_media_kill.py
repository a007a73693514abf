"""What is on disk when the agent is killed, or the disk is full, in the middle of a job."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rla_agent.jobs.code_job import run_code
from rla_agent.jobs.code_store import sweep_objects
from rla_agent.jobs.outcome import JobOutcome
from rla_agent.jobs.render_job import parse_figure, run_figure
from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S
from rla_client.contract.job.code_blob import BLOB_MAGIC
from rla_client.contract.spool.protocol import pack

KILLS = 8
SHAPE = [1, 400, 400, 3]


def write_code_blob(path: Path, files: dict[str, bytes]) -> None:
    index = pack([[name, len(data)] for name, data in files.items()])
    body = BLOB_MAGIC + b"".join(files.values())
    path.write_bytes(body + index + len(index).to_bytes(4, "little") + BLOB_MAGIC)


def killed_at(script: str, seconds: float) -> bool:
    """Run a script, SIGKILL it that long after it said that it begins; True when it was cut off."""
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"begin\n"
        end = time.monotonic() + seconds
        while time.monotonic() < end and child.poll() is None:
            pass
        child.kill()
    return child.wait() == -9


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    folder = tmp_path / "blobs"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_a_kill_while_a_file_is_made_leaves_none_or_the_whole(tmp_path: Path, blobs: Path) -> None:
    pixels = os.urandom(400 * 400 * 3)
    (blobs / "b").write_bytes(pixels)
    results = tmp_path / "results"
    results.mkdir()
    fields = {
        "name": "p/x.png",
        "format": "png",
        "cover": False,
        "blob": "b",
        "shape": SHAPE,
        "dtype": "uint8",
    }
    script = f"""
        import sys
        from pathlib import Path
        from rla_agent.jobs.render_job import parse_figure, run_figure
        print("begin", flush=True)
        job = parse_figure("image", {fields!r})
        run_figure(job, Path({str(blobs)!r}), Path({str(results)!r}), sys.executable)
    """
    draw = random.Random(7)
    cut_off = 0
    for number in range(KILLS):
        cut_off += killed_at(script, draw.uniform(0.0, 0.35) if number % 2 else 0.0)
        for path in results.rglob("*.png"):
            assert Image.open(path).tobytes() == pixels
            path.unlink()  # else the next one finds it made, and nothing can be cut off
    assert cut_off

    result = run_figure(parse_figure("image", fields), blobs, results, sys.executable)

    assert result.outcome in {JobOutcome.WRITTEN, JobOutcome.KEPT}
    assert Image.open(results / "p" / "x.png").tobytes() == pixels
    assert [path.name for path in (results / "p").iterdir()] == ["x.png"], "what killed ones left is gone"


@pytest.mark.slow
def test_a_kill_while_code_is_stored_is_repaired_by_doing_it_again(tmp_path: Path, blobs: Path) -> None:
    files = {f"p{number % 7}/m{number}.py": os.urandom(2000) for number in range(300)}
    write_code_blob(blobs / "b", files)
    store = tmp_path / "code" / ".objects"
    draw = random.Random(7)
    cut_off = 0
    for number in range(KILLS):
        item = tmp_path / f"item{number}"
        item.mkdir()
        script = f"""
            from pathlib import Path
            from rla_agent.jobs.code_job import run_code
            print("begin", flush=True)
            run_code("b", Path({str(blobs)!r}), Path({str(item)!r}), {str(tmp_path)!r})
        """
        cut_off += killed_at(script, draw.uniform(0.0, 0.08) if number % 2 else 0.0)
        for path in item.rglob("*.py"):
            assert path.read_bytes() == files[str(path.relative_to(item))]

        assert run_code("b", blobs, item, tmp_path).outcome is JobOutcome.WRITTEN
        found = {str(path.relative_to(item)): path.read_bytes() for path in item.rglob("*") if path.is_file()}
        assert found == files
    assert cut_off
    sweep_objects(tmp_path, time.time() + 2 * OLD_TEMP_S)
    assert len([path for path in store.rglob("*") if path.is_file()]) == len(files)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("needs a mount of its own")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


JOBS: dict[str, Callable[[Path, Path], Any]] = {
    "image": lambda blobs, item: run_figure(
        parse_figure(
            "image",
            {
                "name": "x.png",
                "format": "png",
                "cover": False,
                "blob": "image",
                "shape": SHAPE,
                "dtype": "uint8",
            },
        ),
        blobs,
        item,
        sys.executable,
    ),
    "code": lambda blobs, item: run_code("code", blobs, item, item.parent),
}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize("kind", list(JOBS))
def test_a_full_disk_keeps_the_job_for_later(small_disk: Path, blobs: Path, kind: str) -> None:
    item = small_disk / "item"
    item.mkdir()
    (blobs / "image").write_bytes(bytes(400 * 400 * 3))
    write_code_blob(blobs / "code", {"a.py": os.urandom(50_000), "b.py": os.urandom(50_000)})
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass

    result = JOBS[kind](blobs, item)
    assert result.outcome is JobOutcome.LATER, result
    assert [path for path in item.rglob("*") if path.is_file()] == []

    ballast.unlink()
    assert JOBS[kind](blobs, item).outcome is JobOutcome.WRITTEN
