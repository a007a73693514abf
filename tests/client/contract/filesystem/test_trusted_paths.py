"""Paths that somebody else can make lead elsewhere are refused."""

from __future__ import annotations

import grp
import itertools
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

from rla_client.contract.errors import PlaceError
from rla_client.contract.filesystem import trusted_paths as trusted_paths_module
from rla_client.contract.filesystem.trusted_paths import folder_problem, make_private, program_problem


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
        trusted_paths_module._is_private_group.cache_clear()
        assert trusted_paths_module._is_private_group(64902, 64902) == private
        assert not trusted_paths_module._is_private_group(64903, 64902)
    trusted_paths_module._is_private_group.cache_clear()


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
        "from rla_client.contract.filesystem.trusted_paths import *\n"
        f"import pathlib; make_private(pathlib.Path('{ground}/a/b'))"
    )
    done = subprocess.run(
        ["unshare", "-U", "--map-current-user", sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.returncode == 0, done.stderr
    assert (ground / "a" / "b").is_dir()


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
