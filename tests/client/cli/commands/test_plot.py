"""`rla plot` for a paper: its size, its fonts, the file that it may replace."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]
POINTS = 72  # of PDF, an inch


def media_box(path: Path) -> tuple[float, float]:
    found = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ([0-9.]+) \]", path.read_bytes())
    assert found is not None
    return float(found[1]) / POINTS, float(found[2]) / POINTS


def test_a_file_among_the_metrics(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run()
    done = rla("plot", "return", "--pdf", "p.pdf", "-d", str(root))
    assert done.returncode == 1
    assert done.stderr == "error: 'p.pdf' is a file, no metric\nhint: -o p.pdf writes it\n"


@pytest.mark.slow
def test_a_pdf_for_a_paper(rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    where = ("return", "-d", str(root))
    assert rla("plot", *where, "--pdf", cwd=tmp_path).returncode == 0
    written = (tmp_path / "plot.pdf").read_bytes()
    assert b"/FontFile2" in written  # TrueType, embedded
    assert b"/Type3" not in written
    assert media_box(tmp_path / "plot.pdf")[0] == pytest.approx(3.3, abs=0.01)
    done = rla("plot", *where, "--pdf", "--serif", "--size", "3.3x2.4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert media_box(tmp_path / "plot.pdf") == pytest.approx((3.3, 2.4), abs=0.01)
    assert b"STIXGeneral" in (tmp_path / "plot.pdf").read_bytes()
    (tmp_path / "plot.pdf").write_bytes(b"%PDF-1.4 of somebody else")
    refused = rla("plot", *where, "--pdf", cwd=tmp_path)
    assert (refused.returncode, "is not from rla plot" in refused.stderr) == (1, True)


@pytest.mark.slow
def test_sizes_that_are_none(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run()
    for words in (
        ["--size", "0x3"],
        ["--size", "a4"],
        ["--size", "nanx2"],
        ["--size", "page", "--width", "3"],
    ):
        done = rla("plot", "return", *words, "-d", str(root))
        assert (done.returncode, "--size" in done.stderr) == (1, True), words
    assert (
        "--pdf writes a file that ends in .pdf" in rla("plot", "--pdf", "-o", "x.png", "-d", str(root)).stderr
    )
