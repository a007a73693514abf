"""What is published: the source archive, the wheel that is built from it, their contents and metadata."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import rla_client

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (ROOT / "LICENSE").exists(), reason="no checkout: the installed wheel is tested"
)
MAX_WHEEL_BYTES = 2_400_000  # 1,100 modules; a picture or a library more would show
PACKAGES = ("rla_client", "rla_agent")


def build(kind: str, source: Path, target: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(target), str(source)],
        check=True,
        capture_output=True,
        timeout=400,
    )
    (found,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive, as an index that has no wheel would have it built."""
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def files_of(package: str) -> set[str]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", package], capture_output=True, text=True, check=False
    )
    listed = done.stdout.split("\n")[:-1]
    return set(listed) or {
        str(path.relative_to(ROOT))
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_all_files_of_the_packages_are_there(wheel: Path, names: set[str]) -> None:
    for package in PACKAGES:
        assert files_of(package) - names == set()
        assert f"{package}/py.typed" in names
    units = {f"rla_agent/data/systemd/{path.name}" for path in (ROOT / "systemd").iterdir()}
    assert units
    assert units <= names
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("rla_client/data/rla_config.yaml") == (ROOT / "rla_config.yaml").read_bytes()


def test_nothing_else_is_there_and_it_is_small(wheel: Path, names: set[str]) -> None:
    version = rla_client.__version__
    tops = {name.split("/")[0] for name in names}
    assert tops == {*PACKAGES, f"rla_agent-{version}.dist-info", f"rla_agent-{version}.data"}
    assert not [name for name in names if name.endswith(".pyc")]
    assert wheel.stat().st_size < MAX_WHEEL_BYTES


def test_manual_pages_completion_and_licences_are_there(names: set[str]) -> None:
    shared = {name.split(".data/data/")[1] for name in names if ".data/data/" in name}
    assert shared == {
        "share/man/man1/rla.1", "share/man/man1/rla-agent.1",
        "share/bash-completion/completions/rla", "share/bash-completion/completions/rla-agent",
        "share/zsh/site-functions/_rla", "share/zsh/site-functions/_rla-agent",
        "share/fish/vendor_completions.d/rla.fish", "share/fish/vendor_completions.d/rla-agent.fish",
    }  # fmt: skip
    licences = {name.split(".dist-info/licenses/")[1] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "rla_client/web/static/vendor/LICENSE.uPlot"}


def test_both_programs_are_entry_points(wheel: Path, names: set[str]) -> None:
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    with zipfile.ZipFile(wheel) as archive:
        scripts = archive.read(entry_points).decode()
    assert "rla-agent = rla_agent.command.app:main" in scripts
    assert "rla = rla_client.cli.app:main" in scripts


def test_metadata_is_complete(metadata: Message) -> None:
    assert metadata["Version"] == rla_client.__version__
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier", [])
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {version}" in classifiers
    assert "Typing :: Typed" in classifiers
    urls = {line.split(", ")[0] for line in metadata.get_all("Project-URL", [])}
    assert urls >= {"Homepage", "Documentation", "Changelog", "Issues"}


def test_a_plain_install_is_light(metadata: Message) -> None:
    plain = {
        re.split(r"[^\w.-]", line)[0].lower()
        for line in metadata.get_all("Requires-Dist", [])
        if "extra ==" not in line
    }
    assert plain
    assert not plain & {"numpy", "pandas", "matplotlib", "tensorboardx", "torch"}


def test_every_extra_that_a_message_or_page_names_exists(metadata: Message) -> None:
    extras = set(metadata.get_all("Provides-Extra", []))
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("rla_*/**/*.py")]
    found = [name for path in texts for name in re.findall(r"rla-agent\[([\w, -]+)\]", path.read_text())]
    found += [name for path in texts for name in re.findall(r'with extra\("(\w+)"', path.read_text())]
    named = {part.strip() for names in found for part in names.split(",")}
    assert len(named) > 5
    assert named - extras == set()


def test_the_source_archive_has_what_its_checks_need(sdist: Path) -> None:
    for name in ("Makefile", "tests", "docs/man/rla.1", "examples", ".ci", "CHANGELOG.md", ".github"):
        assert (sdist / name).exists(), name
