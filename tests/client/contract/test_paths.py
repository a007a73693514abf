"""Where state and sockets lie, and what is refused."""

from __future__ import annotations

import grp
import itertools
import json
import os
import pwd
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.waiting import TIME_FACTOR

from rla_client.config.schema import machine_config_path
from rla_client.contract import paths as places_module
from rla_client.contract.errors import PlaceError
from rla_client.contract.paths import (
    NO_HOME,
    NOWHERE,
    Places,
    find_places,
    folder_problem,
    make_private,
    network_file_system,
    program_problem,
    user_home,
)


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


def test_folders_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_links_files_and_other_owners_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="link or a file"):
        make_private(tmp_path / "link")
    with pytest.raises(PlaceError):
        make_private(tmp_path / "file")
    if os.getuid() == 0:
        os.chown(tmp_path / "real", 12345, 12345)
        with pytest.raises(PlaceError, match="belongs to uid 12345"):
            make_private(tmp_path / "real")


def test_a_local_disk_is_no_network(tmp_path: Path) -> None:
    assert network_file_system(tmp_path / "not" / "there") is None


# -- the folder of the sockets -------------------------------------------------------------------


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
        "from rla_client.contract.paths import *; from pathlib import Path\n"
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
            places.serving()
    os.unlink(places.state / "agent.log")
    assert places.serving()[0] == places


# -- what is safe: owners and modes ---------------------------------------------------------------

OTHER, GROUP = 64900, 64901
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders away")


@pytest.fixture
def ground() -> Iterator[Path]:
    """A short path that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="rla-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(
    ("owner", "group", "mode", "safe"),
    [
        (0, 0, 0o755, True),
        (0, 0, 0o711, True),
        (0, 0, 0o1777, True),  # /tmp
        (0, GROUP, 0o1770, True),
        (0, 0, 0o777, False),
        (0, 0, 0o757, False),
        (0, 0, 0o775, True),  # root's group
        (0, GROUP, 0o755, True),
        (0, GROUP, 0o775, False),
        (0, GROUP, 0o2775, False),
        (0, 100, 0o775, False),  # everybody's, on many machines
        (OTHER, OTHER, 0o755, False),
        (OTHER, OTHER, 0o700, False),
        (OTHER, OTHER, 0o1777, False),  # its owner may rename what others have in it
        (65534, 65534, 0o755, False),  # nobody: here it is a user like others
    ],
)
@pytest.mark.parametrize("depth", [1, 3])
def test_a_folder_on_the_way(ground: Path, owner: int, group: int, mode: int, safe: bool, depth: int) -> None:
    above = ground / "above"
    above.mkdir()
    folder = above.joinpath(*"abc"[:depth])
    folder.mkdir(parents=True, mode=0o700)
    os.chown(above, owner, group)
    above.chmod(mode)
    problem = folder_problem(folder)
    assert (problem is None) == safe, problem
    program = folder / "python"
    program.write_text("")
    program.chmod(0o755)
    assert (program_problem(program) is None) == safe
    if safe:
        make_private(folder / "new")
    else:
        with pytest.raises(PlaceError, match=str(above)) as caught:
            make_private(folder / "new")
        assert caught.value.fix
        assert not (folder / "new").exists()


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(
    ("owner", "group", "mode", "safe"),
    [
        (0, 0, 0o755, True),
        (0, 0, 0o4755, True),
        (0, 0, 0o775, True),
        (0, GROUP, 0o775, False),
        (0, 0, 0o757, False),
        (0, 0, 0o1777, False),  # the bit says nothing of a file
        (OTHER, OTHER, 0o755, False),
        (0, 0, 0o644, False),
    ],
)
def test_a_program(ground: Path, owner: int, group: int, mode: int, safe: bool) -> None:
    program = ground / "python"
    program.write_text("")
    os.chown(program, owner, group)
    program.chmod(mode)
    (ground / "link").symlink_to("./" + program.name)
    for path in (program, ground / "link"):
        assert (program_problem(path) is None) == safe


def test_what_is_no_program(ground: Path) -> None:
    os.mkfifo(ground / "fifo")
    (ground / "round").symlink_to("round")
    for path in (ground, ground / "gone", ground / "fifo", ground / "round", "python", "", "/\0"):
        assert program_problem(path) is not None, path


@pytest.mark.root
@needs_root
def test_links_on_the_way(ground: Path) -> None:
    """Root's and ours are followed, also with .. in them; what they lead to is looked at like the rest."""
    (ground / "real" / "below").mkdir(parents=True, mode=0o700)
    (ground / "abs").symlink_to(ground / "real")
    (ground / "rel").symlink_to("real/../real/below/..")
    for name in ("abs", "rel"):
        assert folder_problem(ground / name / "below") is None
        os.lchown(ground / name, OTHER, OTHER)
        problem = folder_problem(ground / name / "below")
        assert problem is not None
        assert f"{ground / name} belongs to uid {OTHER}" in str(problem)
    (ground / "open").mkdir()
    (ground / "open").chmod(0o777)
    (ground / "open" / "x").mkdir()
    (ground / "into").symlink_to("open/x")
    assert folder_problem(ground / "into" / "new") is not None


def as_user(uid: int, gid: int, code: str, *arguments: object, group_file: Path | None = None) -> str:
    """Run code of this module's as another user, in a child; `group_file` stands for /etc/group."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        said = "failed"
        with suppress(Exception):
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            said = str(eval(code, {**globals(), "arguments": arguments}))
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(
    ("uid", "gid", "safe"),
    [
        (OTHER, OTHER, True),  # a group of one's own, umask 002; here without an entry anywhere
        (OTHER, GROUP, False),  # a group that others may be in
        (OTHER, 0, True),  # any uid in group 0, as OpenShift has it
    ],
)
def test_a_home_that_its_group_may_write(ground: Path, uid: int, gid: int, safe: bool) -> None:
    home = ground / "home"
    home.mkdir()
    os.chown(home, uid, gid)
    home.chmod(0o775)
    said = as_user(uid, gid, "folder_problem(arguments[0] / 'state')", home)
    assert (said == "None") == safe, said
    if not safe:
        assert f"chmod g-w {home}" in said


@pytest.mark.root
@needs_root
def test_a_group_with_further_members_is_nobodys_own(monkeypatch: pytest.MonkeyPatch, ground: Path) -> None:
    """The table of groups says so: Debian's user `ada` in group `ada`, then with a colleague in it."""
    entry = pwd.struct_passwd(("ada", "x", 64902, 64902, "", "/", "/bin/sh"))
    for members, name, private in (
        ([], "ada", True), (["ada", "root"], "ada", True), (["ada", "bob"], "ada", False), ([], "lab", True),
    ):  # fmt: skip
        monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
        monkeypatch.setattr(
            grp, "getgrgid", lambda gid, g=(name, members): grp.struct_group((g[0], "x", gid, g[1]))
        )
        places_module._is_private_group.cache_clear()
        assert places_module._is_private_group(64902, 64902) == private
        assert not places_module._is_private_group(64903, 64902)
    places_module._is_private_group.cache_clear()


def test_a_private_group_with_an_acl(ground: Path) -> None:
    """An ACL that lets another user write shows as the group's bits."""
    home = ground / "home"
    home.mkdir()
    nobody = 0xFFFFFFFF
    entries = [(1, 7, nobody), (2, 7, OTHER), (4, 5, nobody), (0x10, 7, nobody), (0x20, 5, nobody)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(home, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("no ACLs on this file system")
    assert home.stat().st_mode & 0o777 == 0o775
    assert folder_problem(home / "state") is not None


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_user_namespace_that_maps_only_us(ground: Path) -> None:
    """Root's folders look like nobody's there; the state is ours."""
    code = (
        f"from rla_client.contract.paths import *\nimport pathlib; make_private(pathlib.Path('{ground}/a/b'))"
    )
    done = subprocess.run(
        ["unshare", "-U", "--map-current-user", sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.returncode == 0, done.stderr
    assert (ground / "a" / "b").is_dir()


# -- beside somebody who works against it ---------------------------------------------------------


def _attack(shared: Path, own: Path, name: str, until: Path) -> None:
    """Take the name in each way there is, again and again."""
    for kind in itertools.cycle(("mkdir", "link", "rename", "away")):
        if until.exists():
            return
        target = shared / name
        with suppress(OSError):
            if kind == "mkdir":
                target.mkdir()
                target.chmod(0o1777)
            elif kind == "link":
                target.symlink_to(own)
            elif kind == "rename":
                (own / "ready").mkdir(exist_ok=True)
                (own / "ready").chmod(0o1777)
                os.rename(own / "ready", target)
            else:
                os.rename(target, own / f"taken-{os.urandom(4).hex()}")
        for inner in ("key", "key/spool"):
            with suppress(OSError):
                os.rename(target / inner, own / f"taken-{os.urandom(4).hex()}")
            with suppress(OSError):
                (target / inner).symlink_to(own)


def _make_often(shared: Path, name: str, times: int) -> tuple[int, int]:
    """Successes, and how many of them were betrayed: what was written then is not where it was meant."""
    good = betrayed = 0
    for number in range(times):
        folder = shared / name / "key" / "spool"
        try:
            make_private(folder)
        except PlaceError:
            continue
        good += 1
        mark = folder / f"mark-{number}"
        try:
            mark.touch()
            lines = [os.lstat(path) for path in (mark, folder, folder.parent, folder.parent.parent)]
            betrayed += any(line.st_uid != os.geteuid() for line in lines)
            shutil.rmtree(shared / name)
        except OSError:
            betrayed += 1
    return good, betrayed


@pytest.mark.slow
@pytest.mark.root
@needs_root
def test_nobody_gets_between_the_check_and_the_use(ground: Path) -> None:
    shared, own, done = ground / "shared", ground / "own", ground / "done"
    shared.mkdir()
    shared.chmod(0o1777)
    own.mkdir()
    own.chmod(0o1777)
    os.chown(own, OTHER, OTHER)
    attacker = os.fork()
    if attacker == 0:
        os.setgid(OTHER)
        os.setuid(OTHER)
        _attack(shared, own, "rla-agent-x", done)
        os._exit(0)
    try:
        good, betrayed = 0, 0
        end = time.monotonic() + 60 * TIME_FACTOR
        while good < 100 and time.monotonic() < end:
            for path in shared.iterdir():  # root makes room, or the first of them would be the last
                path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
            said = as_user(OTHER + 5, OTHER + 5, "_make_often(*arguments)", shared, "rla-agent-x", 50)
            more = [int(part) for part in said.strip("()").split(",")]
            good, betrayed = good + more[0], betrayed + more[1]
    finally:
        done.touch()
        os.waitpid(attacker, 0)
    assert betrayed == 0
    assert good >= 100, "the other was always first: nothing was tried"
    assert not list(own.rglob("mark-*"))


IN_ITS_OWN_UTS = (
    "import socket, sys; socket.sethostname(sys.argv[1]); from rla_client.contract.paths import find_places; "
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
