"""Where state and sockets lie."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_client.config.machine_config import machine_config_path
from rla_client.contract.agent import places as places_module
from rla_client.contract.agent.places import NOWHERE, Places, find_places
from rla_client.contract.errors import PlaceError
from rla_client.contract.filesystem.trusted_paths import check_entries
from rla_client.contract.process.account import NO_HOME, user_home


def test_variables_say_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("RLA_RUNTIME_DIR", str(tmp_path / "r"))
    assert find_places() == Places(tmp_path / "s", tmp_path / "r")
    assert not (tmp_path / "s").exists(), "looking creates nothing"


def test_two_state_folders_never_share_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RLA_RUNTIME_DIR", raising=False)
    found = []
    for name in ("a", "b"):
        monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / name))
        found.append(find_places().runtime)
    assert found[0] != found[1]


def test_a_uid_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is given a uid and no HOME."""
    for name in ("RLA_STATE_DIR", "RLA_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert find_places().state.parent.name.startswith(f"rla-agent-{os.geteuid()}")
    assert user_home() == machine_config_path().parents[2] == NO_HOME


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_two_homes_of_one_user_never_share_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """Each has an agent of its own, and none may answer for the other."""
    for name in ("RLA_STATE_DIR", "RLA_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    found = []
    for name in ("a", "b", "a"):
        monkeypatch.setenv(variable, str(tmp_path / name))
        found.append(find_places())
    assert found[0] == found[2]
    assert (found[0].state == found[1].state, found[0].runtime == found[1].runtime) == (False, False)


def test_a_socket_path_that_is_too_long_goes_below_the_state_folder(ground: Path) -> None:
    places = Places(ground / "s", ground / ("x" * 100))
    places.create()
    serving, why = places.serving()
    assert serving == Places(ground / "s", ground / "s" / "sockets")
    assert "too long" in why
    assert "RLA_RUNTIME_DIR" in why


def test_a_state_folder_that_is_too_deep_for_sockets(ground: Path) -> None:
    """The agent serves in a short folder of its own, the same after each restart, and clients follow it."""
    places = Places(ground / ("s" * 90), ground / ("x" * 100))
    places.create()
    serving, why = places.serving()
    again, _ = places.serving()
    try:
        assert again == serving
        assert serving.runtime.is_relative_to(f"/tmp/rla-agent-{os.geteuid()}")
        assert "too long" in why
        assert places.sockets == NOWHERE, "clients connect to nothing until an agent says where it serves"
        places.lock.write_text(json.dumps({"runtime": str(serving.runtime)}))
        assert places.sockets == serving.runtime
        serving.runtime.chmod(0o750)
        assert places.sockets == NOWHERE, "somebody else may be in there by now"
    finally:
        serving.runtime.rmdir()


@pytest.mark.parametrize("kind", ["file", "link", "no folder above"])
def test_what_stands_in_the_place_of_the_runtime_folder(ground: Path, kind: str) -> None:
    runtime = ground / "runtime"
    if kind == "link":
        runtime.symlink_to(ground)
    else:
        runtime.write_text("")
    places = Places(ground / "s", runtime / "below" if kind == "no folder above" else runtime)
    places.create()
    serving, why = places.serving()
    assert serving.runtime == ground / "s" / "sockets"
    assert str(runtime) in why


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
@pytest.mark.parametrize("options", ["ro", "nr_inodes=2"])
def test_a_runtime_folder_that_takes_no_sockets(ground: Path, options: str) -> None:
    """Read-only, or full: an inode is what a socket needs."""
    (ground / "run").mkdir()
    code = (
        "from rla_client.contract.agent.places import *; from pathlib import Path\n"
        f"places = Places(Path('{ground}/s'), Path('{ground}/run/a'))\n"
        "places.create(); print(places.serving()[0].runtime)"
    )
    mount = f"mount -t tmpfs -o mode=700,{options} none {ground}/run"
    if options != "ro":
        mount += f" && touch {ground}/run/b"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec {sys.executable} -c "{code}"'],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"{ground}/s/sockets\n", done.stderr


def test_something_of_another_user_in_the_state_folder(ground: Path) -> None:
    places = Places(ground / "s", ground / "r")
    places.create()
    (places.state / "agent.log").symlink_to("/etc/passwd")
    if os.geteuid() == 0:
        os.lchown(places.state / "agent.log", OTHER, OTHER)
        with pytest.raises(PlaceError, match=f"agent.log belongs to uid {OTHER}"):
            check_entries(places.state)
    os.unlink(places.state / "agent.log")
    check_entries(places.state)


OTHER, GROUP = 64900, 64901


@pytest.fixture
def ground() -> Iterator[Path]:
    """A short path that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="rla-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


IN_ITS_OWN_UTS = (
    "import socket, sys; socket.sethostname(sys.argv[1]); "
    "from rla_client.contract.agent.places import find_places; "
)
SAY_STATE = IN_ITS_OWN_UTS + "places = find_places(); places.create(); print(places.state)"


def renamed(home: Path, host: str) -> Path:
    """The state folder, made, that a process finds on a machine of that name."""
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    environment.pop("RLA_STATE_DIR", None)
    done = subprocess.run(
        ["unshare", "--uts", sys.executable, "-c", SAY_STATE, host],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ermitted" in done.stderr:
        pytest.skip("a host name of its own needs root")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.skipif(not places_module._machine_id(), reason="this machine has no /etc/machine-id")
def test_a_new_host_name_changes_nothing(tmp_path: Path) -> None:
    first = renamed(tmp_path, "one")
    assert first.name.startswith("one-")
    assert renamed(tmp_path, "two") == first
    assert renamed(tmp_path, "one") == first
    foreign = first.with_name("three-00000000")
    (foreign / "spool").mkdir(parents=True)
    assert renamed(tmp_path, "three") == first, "of another machine id"
    shutil.rmtree(first)
    assert renamed(tmp_path, "two").name.startswith("two-")
