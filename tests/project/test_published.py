"""Workflows, hooks and container files: they fit their schemas, and what they name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rla_client

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="no checkout: the installed wheel is tested")


def run_lines(path: Path) -> list[str]:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        *[("github-workflows", path) for path in WORKFLOWS],
        ("dependabot", GITHUB / "dependabot.yml"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_it_fits_its_schema(schema: str, path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)],
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_make_targets_of_a_workflow_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for line in run_lines(path) for name in re.findall(r"\bmake ([a-z-]+)", line)}
    assert named
    assert named <= targets


def test_all_supported_pythons_are_tested() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"]
    project = (ROOT / "pyproject.toml").read_text()
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert supported
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported


def test_the_version_is_the_same_everywhere() -> None:
    version = rla_client.__version__
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert yaml.safe_load((GITHUB / "CITATION.cff").read_text())["version"] == version
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_hooks_run_what_make_lint_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entries = {Path(hook["entry"].split()[0]).name for hook in hooks}
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe[1])) <= entries


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "docker").glob("Dockerfile.*")), ids=lambda p: p.name
)
def test_a_dockerfile_copies_what_is_there(path: Path) -> None:
    lines = path.read_text().splitlines()
    words = {line.split()[0] for line in lines if line and not line.startswith("#")}
    assert words <= {
        "FROM",
        "ARG",
        "ENV",
        "WORKDIR",
        "RUN",
        "COPY",
        "USER",
        "EXPOSE",
        "VOLUME",
        "ENTRYPOINT",
        "CMD",
    }
    for line in lines:
        if line.startswith("COPY"):
            copied = [name for name in line.split()[1:-1] if not name.startswith("--")]
            assert [name for name in copied if not (path.parent / name).exists()] == []
        if line.startswith("RUN"):
            subprocess.run(["sh", "-n", "-c", line.removeprefix("RUN ")], check=True)
