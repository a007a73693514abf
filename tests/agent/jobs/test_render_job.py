"""Render jobs: what is refused, what an evil blob can do, and that results arrive whole."""

from __future__ import annotations

import ctypes
import io
import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from rla_agent.jobs import render_job
from rla_agent.jobs.outcome import JobOutcome, JobResult
from rla_agent.jobs.render_job import parse_figure, run_figure
from rla_client.contract.errors import RemoteProtocolError, UnsafeNameError
from rla_client.contract.job.arena_layout import SLOT_BUSY, SLOT_FREE
from rla_client.media.figure_pickle import dump_figure
from rla_client.media.render import MAX_CPU_S
from rla_client.stream.arena import Arena, create_arena

Run = Callable[..., JobResult]
IMAGE = {"format": "png", "cover": False, "blob": "b", "shape": [1, 2, 3, 3], "dtype": "uint8"}
PIXELS = bytes(range(18))
ARENA = f"rla-arena-{os.geteuid()}-0123456789ab-0123456789abcdef-01234567"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "results").mkdir()

    def run(
        kind: str, fields: dict[str, Any], blob: bytes = PIXELS, python: str = sys.executable
    ) -> JobResult:
        (tmp_path / "blobs" / "b").write_bytes(blob)
        job = parse_figure(kind, {"name": "x.png", **fields})
        return run_figure(job, tmp_path / "blobs", tmp_path / "results", python)

    return run


class Evil:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def figure_blob(evil: Any) -> bytes:
    return pickle.dumps({"figure": evil, "options": {}, "rc": {}, "fonts": []})


FIGURE = {"format": "png", "cover": False, "blob": "b"}


def test_an_image_arrives_pixel_by_pixel(tmp_path: Path, run: Run) -> None:
    result = run("image", {**IMAGE, "name": "a/b/x.png"})

    assert result.outcome is JobOutcome.WRITTEN
    path = tmp_path / "results" / "a" / "b" / "x.png"
    assert Image.open(path).tobytes() == PIXELS
    assert [entry.name for entry in path.parent.iterdir()] == ["x.png"]


def test_a_file_that_is_there_stays_unless_covered(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "results" / "x.png"
    path.write_bytes(b"older")

    assert run("image", IMAGE).outcome is JobOutcome.KEPT
    assert path.read_bytes() == b"older"
    assert run("image", {**IMAGE, "cover": True}).outcome is JobOutcome.WRITTEN
    assert Image.open(path).tobytes() == PIXELS
    assert [entry.name for entry in path.parent.iterdir()] == ["x.png"]


def test_a_file_that_comes_while_ours_is_drawn_stays_too(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "results" / "x.png"
    late = tmp_path / "late"
    late.write_text(f'#!/bin/sh\necho older > {path}\nexec {sys.executable} "$@"\n')
    late.chmod(0o755)

    assert run("image", IMAGE, python=str(late)).outcome is JobOutcome.KEPT
    assert path.read_bytes() == b"older\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["x.png"]


def test_what_is_there_is_not_drawn_in_vain(tmp_path: Path, run: Run) -> None:
    (tmp_path / "results" / "x.png").write_bytes(b"older")

    assert run("image", {**IMAGE, "blob": "missing"}).outcome is JobOutcome.KEPT


def test_a_job_done_twice_leaves_the_same_file(tmp_path: Path, run: Run) -> None:
    first = run("image", IMAGE)
    content = (tmp_path / "results" / "x.png").read_bytes()

    assert (first.outcome, run("image", IMAGE).outcome) == (JobOutcome.WRITTEN, JobOutcome.KEPT)
    assert (tmp_path / "results" / "x.png").read_bytes() == content


def test_the_agent_itself_loads_no_pickle(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "b").write_bytes(figure_blob(Evil(os.system, "true")))
    script = f"""
        import sys
        from pathlib import Path
        from rla_agent.jobs.render_job import parse_figure, run_figure
        found = []
        sys.addaudithook(lambda event, _: found.append(event) if event == "pickle.find_class" else None)
        job = parse_figure("figure", dict(name="x.png", format="png", cover=False, blob="b"))
        result = run_figure(job, Path({str(tmp_path)!r}), Path({str(tmp_path / "results")!r}), sys.executable)
        assert result.outcome.value == "failed", result
        assert found == [], found
        assert not {{"matplotlib", "numpy", "rla_client.media.render"}} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_a_render_process_that_gets_little_of_a_busy_machine_is_not_given_up() -> None:
    assert min(render_job.TIMEOUT_S.values()) > MAX_CPU_S, "whoever still computes is not taken for stuck"


@pytest.mark.slow
def test_a_figure_that_never_ends_is_given_up(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(render_job.TIMEOUT_S, "figure", 1.5)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)

    result = run("figure", FIGURE, python=str(slow))

    assert result.outcome is JobOutcome.FAILED
    assert "not done after" in result.reason


def test_a_figure_that_eats_memory_is_given_up(run: Run) -> None:
    figure = Figure()
    figure.subplots().xaxis.set_major_formatter("{x:99999999999}")

    result = run("figure", FIGURE, dump_figure(figure, {}))

    assert result.outcome is JobOutcome.FAILED
    assert "MemoryError" in result.reason


@pytest.mark.parametrize("blob", [b"", b"garbage", pickle.dumps({"figure": 1}), pickle.dumps([1])])
def test_a_garbage_figure_fails_and_leaves_nothing(tmp_path: Path, run: Run, blob: bytes) -> None:
    assert run("figure", FIGURE, blob).outcome is JobOutcome.FAILED
    assert list((tmp_path / "results").iterdir()) == []


def test_the_render_process_gets_nothing_of_the_agents(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent.sock")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    spy = tmp_path / "spy"
    seen = tmp_path / "seen.json"
    spy.write_text(
        f"#!{sys.executable} -E\n"
        "import json, os\n"
        "fds = {n: os.readlink('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd') if int(n) < 3 or\n"
        "       os.path.exists('/proc/self/fd/' + n)}\n"
        f"json.dump([dict(os.environ), fds, os.getcwd(), os.getsid(0)], open({str(seen)!r}, 'w'))\n"
    )
    spy.chmod(0o755)
    secret = os.open(tmp_path / "results", os.O_RDONLY)
    os.set_inheritable(secret, True)

    try:
        result = run("image", IMAGE, python=str(spy))
    finally:
        os.close(secret)

    assert result.outcome is JobOutcome.FAILED  # the spy draws nothing
    environment, descriptors, cwd, session = json.loads(seen.read_text())
    allowed = {
        *render_job.PASSED_ON,
        "HOME",
        "MPLBACKEND",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
    }
    assert set(environment) <= allowed | {"LC_CTYPE"}
    assert "hunter2" not in json.dumps(environment)
    assert descriptors["0"] == str(tmp_path / "blobs" / "b")
    assert set(descriptors) <= {"0", "1", "2", "3"}  # 3: the listing itself
    assert str(tmp_path / "results") not in descriptors.values()
    assert (cwd, session != os.getsid(0)) == ("/", True)


def test_a_run_whose_interpreter_is_gone_gets_the_agents(tmp_path: Path, run: Run) -> None:
    for python in ("/nowhere/python", "relative/python", str(tmp_path), ""):
        assert run("image", {**IMAGE, "cover": True}, python=python).outcome is JobOutcome.WRITTEN


@pytest.mark.parametrize("open_to_all", ["file", "folder"])
def test_an_interpreter_that_somebody_else_can_exchange_is_not_started(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, open_to_all: str
) -> None:
    """The agent's own draws then; where that one is no better, nothing does."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ntouch {tmp_path}/canary\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    image = {**IMAGE, "cover": True}
    assert run("image", image, python=str(program)).outcome is JobOutcome.WRITTEN
    (tmp_path / "canary").unlink()
    (program if open_to_all == "file" else program.parent).chmod(0o757)
    assert run("image", image, python=str(program)).outcome is JobOutcome.WRITTEN
    monkeypatch.setattr(sys, "executable", str(program))
    refused = run("image", image, python=str(program))
    assert refused.outcome is JobOutcome.FAILED
    assert "can be written by everybody" in refused.reason
    assert not (tmp_path / "canary").exists()


def test_without_an_interpreter_a_figure_waits_for_the_library(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(render_job.LIBRARIES, "image", "no_such_library")

    result = run("image", IMAGE, python="")

    assert result.outcome is JobOutcome.LATER
    assert "install no_such_library beside rla-agent" in result.reason
    assert (tmp_path / "blobs" / "b").exists()
    assert run("image", IMAGE).outcome is JobOutcome.WRITTEN


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_the_interpreter_of_another_users_stream_is_not_started(tmp_path: Path, run: Run) -> None:
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    spy.chmod(0o755)
    os.chown(tmp_path / "blobs", 12345, 12345)

    assert run("image", IMAGE, python=str(spy)).outcome is JobOutcome.WRITTEN
    assert not (tmp_path / "started").exists()


def test_an_item_that_is_gone_is_not_made_again(tmp_path: Path, run: Run) -> None:
    (tmp_path / "results").rmdir()

    assert run("image", IMAGE).outcome is JobOutcome.REMOVED
    assert not (tmp_path / "results").exists()


def test_links_in_the_item_are_not_followed(tmp_path: Path, run: Run) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "results" / "p").symlink_to(outside)
    (tmp_path / "results" / "x.png").symlink_to(outside / "y.png")

    assert run("image", {**IMAGE, "name": "p/x.png"}).outcome is JobOutcome.FAILED
    assert run("image", IMAGE).outcome is JobOutcome.KEPT
    assert run("image", {**IMAGE, "cover": True}).outcome is JobOutcome.WRITTEN
    assert not (tmp_path / "results" / "x.png").is_symlink()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["../x.png", "/x.png", "a/../../x.png", "", "x\n.png", "a" * 300])
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        parse_figure("image", {**IMAGE, "name": name})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("image", {"name": 3}),
        ("image", {"format": "exe"}),
        ("figure", {"format": "mp4"}),
        ("image", {"cover": 1}),
        ("image", {"blob": "../b"}),
        ("image", {"blob": None}),
        ("image", {"shape": [1, 2, 3]}),
        ("image", {"shape": [1, 2, 3, 2]}),
        ("image", {"shape": [1, -2, 3, 3]}),
        ("image", {"shape": [1, 20000, 3, 3]}),
        ("video", {"shape": [1000000, 16000, 16000, 4], "format": "mp4"}),
        ("image", {"dtype": "object"}),
        ("image", {"dtype": ["uint8"]}),
        ("video", {"format": "mp4", "fps": 1, "shape": [1, 2, 2, 3.0]}),
        ("video", {"format": "mp4", "fps": 0}),
        ("video", {"format": "mp4", "fps": float("nan")}),
        ("video", {"format": "mp4", "fps": "30"}),
        ("image", {"slot": ["../../etc/passwd", 0, 1]}),
        ("image", {"slot": [ARENA.replace("0123", "/../"), 0, 1]}),
        ("image", {"slot": [ARENA, 0]}),
        ("image", {"slot": [ARENA, 8, 1]}),
        ("image", {"slot": [ARENA, True, 1]}),
        ("image", {"slot": [ARENA, 0, -1]}),
        ("image", {"slot": [ARENA, 0, 1 << 63]}),
        ("image", {"slot": 3}),
        ("checkpoint", {}),
    ],
)
def test_malformed_jobs_are_refused(kind: str, change: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_figure(kind, {**IMAGE, "name": "x.png", **change})
    with pytest.raises(RemoteProtocolError):
        parse_figure(kind, [])


def test_an_array_that_is_not_all_there_fails(run: Run) -> None:
    assert run("image", IMAGE, PIXELS[:-1]).outcome is JobOutcome.FAILED


def test_what_lies_behind_an_array_does_no_harm(run: Run) -> None:
    assert run("image", IMAGE, PIXELS + b"x").outcome is JobOutcome.WRITTEN


def test_blobs_that_are_links_fail(tmp_path: Path, run: Run) -> None:
    (tmp_path / "blobs" / "link").symlink_to("/etc/passwd")

    assert run("image", {**IMAGE, "blob": "link"}).outcome is JobOutcome.FAILED
    assert run("image", {**IMAGE, "blob": "missing"}).outcome is JobOutcome.FAILED


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """One as a client makes it, of the stream that `run` is of."""
    made = create_arena(tmp_path, 4096)
    assert made is not None
    yield made
    made.close(unlink=True)


def fill(arena: Arena, number: int) -> None:
    arena.mark(0, SLOT_BUSY, number)
    ctypes.memmove(arena.slot_address(0), PIXELS, len(PIXELS))


def test_a_slot_is_read_and_given_back(tmp_path: Path, run: Run, arena: Arena) -> None:
    fill(arena, 5)

    result = run("image", {**IMAGE, "slot": [arena.name, 0, 5]})

    assert result.outcome is JobOutcome.WRITTEN
    assert Image.open(tmp_path / "results" / "x.png").tobytes() == PIXELS
    assert arena.header(0) == (SLOT_FREE, 5)


def test_a_slot_used_again_is_never_written_under_the_wrong_name(
    tmp_path: Path, run: Run, arena: Arena
) -> None:
    fill(arena, 6)

    result = run("image", {**IMAGE, "slot": [arena.name, 0, 5]})

    assert result.outcome is JobOutcome.FAILED
    assert "lost" in result.reason
    assert arena.header(0) == (SLOT_BUSY, 6)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_slot_used_again_while_it_is_drawn_is_not_written(
    tmp_path: Path, run: Run, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(arena, 5)
    render = render_job._render

    def late(*arguments: Any) -> str | None:
        fill(arena, 6)
        return render(*arguments)

    monkeypatch.setattr(render_job, "_render", late)

    assert run("image", {**IMAGE, "slot": [arena.name, 0, 5]}).outcome is JobOutcome.FAILED
    assert list((tmp_path / "results").iterdir()) == []


def test_a_slot_of_another_stream_is_refused(tmp_path: Path, run: Run) -> None:
    other = create_arena(tmp_path / "another", 4096)
    assert other is not None
    fill(other, 5)

    assert run("image", {**IMAGE, "slot": [other.name, 0, 5]}).outcome is JobOutcome.FAILED
    assert other.header(0) == (SLOT_BUSY, 5)
    other.close(unlink=True)


def test_what_a_library_prints_does_not_end_up_in_the_file(tmp_path: Path, run: Run) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text(
        f"#!{sys.executable}\n"
        "import runpy, sys\n"
        "sys.argv = sys.argv[2:]\n"
        "import PIL.Image\n"
        "save = PIL.Image.Image.save\n"
        "def loud(self, *a, **k):\n    print('noise', flush=True)\n    return save(self, *a, **k)\n"
        "PIL.Image.Image.save = loud\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    noisy.chmod(0o755)

    assert run("image", IMAGE, python=str(noisy)).outcome is JobOutcome.WRITTEN
    assert Image.open(io.BytesIO((tmp_path / "results" / "x.png").read_bytes())).tobytes() == PIXELS
    assert b"noise" not in (tmp_path / "results" / "x.png").read_bytes()
