"""Manual pages name all commands and options; the completion scripts complete, and can be installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rla_client

ROOT = Path(__file__).parents[2]
MAN = ROOT / "docs" / "man"
pytestmark = pytest.mark.skipif(not MAN.exists(), reason="no checkout: the installed wheel is tested")
PROGRAMS = ("rla", "rla-agent")
NAMES = re.compile(r"^\.(?:SS|TH) .*|^\\fB.*", re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_page_has_the_commands_and_options_of_today(program: str, tmp_path: Path) -> None:
    """Texts may differ by the version of typer; `.ci/man_pages.py` writes the pages anew."""
    subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "man_pages.py"), str(tmp_path)], check=True, timeout=180
    )
    page = (MAN / f"{program}.1").read_text()
    assert NAMES.findall(page) == NAMES.findall((tmp_path / f"{program}.1").read_text())
    assert f"rla\\-agent {rla_client.__version__}" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_page_is_sound(program: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", "-ww", str(MAN / f"{program}.1")],
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert b"COMMANDS" in done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment where both programs are found, with a home of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program, module in (("rla", "rla_client.cli.app"), ("rla-agent", "rla_agent.command.app")):
        script = folder / program
        script.write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
        script.chmod(0o755)
    return {**os.environ, "HOME": str(tmp_path), "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("program", "typed", "offered"), [("rla", "sho", "show"), ("rla-agent", "doc", "doctor")]
)
def test_bash_completes_with_the_shipped_script(
    program: str, typed: str, offered: str, programs: dict[str, str]
) -> None:
    script = ROOT / "docs" / "completion" / f"{program}.bash"
    ask = f"""
        source {script}
        COMP_WORDS=({program} {typed}); COMP_CWORD=1
        "$(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/')" {program}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, env=programs, check=True, timeout=180
    )
    assert done.stdout.split() == [offered], done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_install_completion_writes_into_the_home(
    program: str, programs: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{program} --install-completion; exit $?"],
        capture_output=True, text=True, env=programs, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    installed = tmp_path / ".bash_completions" / f"{program}.sh"
    assert f"_{program.upper().replace('-', '_')}_COMPLETE=complete_bash" in installed.read_text()
    assert str(installed) in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_version(program: str, programs: dict[str, str]) -> None:
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, env=programs, check=True, timeout=180
    )
    assert done.stdout == f"{program} {rla_client.__version__}\n"
