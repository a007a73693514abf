"""Which kills for lack of memory the kernel counted, read from copies of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla_agent.pipeline.oom_kills import MACHINE, KillCounts, count_kills, memory_groups, memory_words

GIB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "7").mkdir(parents=True)
    (folder / "vmstat").write_text("nr_free_pages 12\noom_kill 3\nswap_ra 0\n")
    return folder


def make_group(folder: Path, kills: int, *, peak: int = 0, limit: int | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.events").write_text(f"low 0\noom 1\noom_kill {kills}\noom_group_kill 0\n")
    (folder / "memory.peak").write_text(f"{peak}\n")
    (folder / "memory.max").write_text("max\n" if limit is None else f"{limit}\n")
    return folder


def test_the_groups_of_a_process_of_version_2(proc: Path, tmp_path: Path) -> None:
    (proc / "7/cgroup").write_text("0::/slice/job_1/step_0\n")
    step, job = make_group(tmp_path / "cg/slice/job_1/step_0", 0), make_group(tmp_path / "cg/slice/job_1", 0)
    assert memory_groups(7, tmp_path / "cg", proc) == [step, job]
    assert memory_groups(8, tmp_path / "cg", proc) == []


def test_the_groups_of_a_process_of_version_1(proc: Path, tmp_path: Path) -> None:
    (proc / "7/cgroup").write_text("4:cpu:/x\n3:memory:/docker/abc\n0::/\n")
    top = tmp_path / "cg/memory"
    top.mkdir(parents=True)
    (top / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert memory_groups(7, tmp_path / "cg", proc) == [top]  # a container sees its own group at the top
    (top / "memory.limit_in_bytes").write_text(f"{GIB // 2}")
    (top / "memory.max_usage_in_bytes").write_text(f"{GIB // 2 - (1 << 20)}")
    assert memory_words(str(top)) == "out of memory: 511 of 512 MiB"


def test_a_path_that_leads_out_of_the_tree_is_not_followed(proc: Path, tmp_path: Path) -> None:
    (proc / "7/cgroup").write_text("0::/../../etc\n")
    make_group(tmp_path / "etc", 5)
    assert memory_groups(7, tmp_path / "cg", proc) == []


def test_the_nearest_count_that_can_be_compared_decides_alone(proc: Path, tmp_path: Path) -> None:
    own, above = tmp_path / "own", tmp_path / "above"
    order = [str(own), str(above), MACHINE]
    make_group(own, 1)
    make_group(above, 4)
    before = count_kills([own, above], proc)
    assert before == KillCounts({str(own): 1, str(above): 4, MACHINE: 3})
    make_group(above, 5)  # a neighbour's
    assert count_kills([own, above], proc).since(before, order) is None
    make_group(own, 2)
    assert count_kills([own, above], proc).since(before, order) == str(own)
    (own / "memory.events").unlink()  # the group ended with its process
    assert count_kills([own, above], proc).since(before, order) == str(above)
    (proc / "vmstat").write_text("oom_kill 4\n")
    assert count_kills([], proc).since(before, order) == MACHINE
    (proc / "vmstat").write_text("nothing of it\n")
    assert count_kills([], proc).since(before, order) is None


def test_words(tmp_path: Path) -> None:
    known = make_group(tmp_path / "known", 1, peak=int(31.2 * GIB), limit=32 * GIB)
    assert memory_words(str(known)) == "out of memory: 31.2 of 32 GiB"
    (known / "memory.peak").unlink()  # of kernels before 5.19
    assert memory_words(str(known)) == "out of memory: the limit is 32 GiB"
    assert "control group" in memory_words(str(make_group(tmp_path / "free", 1)))
    assert "this machine" in memory_words(MACHINE)
