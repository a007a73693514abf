"""What of others is in the page: as they published it, and with their licence."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rla_client.web
from rla_client.web import guard

STATIC = Path(rla_client.web.__file__).parent / "static"
VENDOR = STATIC / "vendor"
REPOSITORY = Path(__file__).resolve().parents[2]
MAX_LINE = 600  # of a source that people read
FOREIGN_ADDRESS = re.compile(r"""(?:https?:)?//[a-z0-9-]+(?:\.[a-z0-9-]+)+""")


def own_files() -> list[Path]:
    return [path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents]


def test_each_vendored_file_is_what_its_sum_says() -> None:
    lines = (line.split() for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    there = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}
    assert there == set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name


def test_the_licence_is_there() -> None:
    text = (VENDOR / "LICENSE.uPlot").read_text()
    assert "MIT License" in text or "Permission is hereby granted, free of charge" in text
    assert "Leon Sorokin" in text


def test_nothing_else_is_minified() -> None:
    for path in own_files():
        assert ".min." not in path.name
        if path.suffix in {".js", ".css", ".html"}:
            longest = max(map(len, path.read_text().splitlines()), default=0)
            assert longest <= MAX_LINE, (path.name, longest)


def test_the_page_names_no_other_host() -> None:
    for path in own_files():
        text = path.read_text()
        found = [
            one
            for one in FOREIGN_ADDRESS.findall(text)
            if "www.w3.org" not in one and not one.startswith("//127.")  # name spaces are no addresses
        ]
        assert found == [], path.name


def test_no_source_makes_markup_of_text() -> None:
    """The page's sources have no way from a run's words to markup or code."""
    ways = re.compile(
        r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|srcdoc)\b"
    )
    for path in own_files():
        if path.suffix == ".js":
            assert ways.findall(path.read_text()) == [], path.name


def test_each_module_that_is_imported_is_there() -> None:
    imports = re.compile(r"""(?:from|import)\s*\(?["'](\.[^"']+)["']""")
    for path in own_files():
        if path.suffix == ".js":
            for name in imports.findall(path.read_text()):
                assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_the_policy_has_no_word_that_opens_it() -> None:
    assert "unsafe" not in guard.POLICY
    assert "*" not in guard.POLICY
    assert "http" not in guard.POLICY


@pytest.mark.slow
def test_the_wheel_has_the_page_and_the_licence(tmp_path: Path) -> None:
    if not (REPOSITORY / "rla_client" / "web").is_dir():
        pytest.skip("no source here: these tests run beside an installed wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), "."]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if name.startswith("rla_client/web/static/")}
        for path in STATIC.rglob("*"):
            if path.is_file():
                name = f"rla_client/web/static/{path.relative_to(STATIC)}"
                assert name in inside
                assert opened.read(name) == path.read_bytes()
