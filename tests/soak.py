"""The full counts of docs/reliability.md, part by part: `make soak`, `make soak PART="r3 r6"`.

A part is some test files, run whole: the quick forms and those marked `soak`. Its figures (what the tests
print), its outcome and its duration go to build/soak/PART.json. A part that passed on the same sources is
not run again unless FRESH=1. SHOW=1 runs nothing and tells what is known, of whatever sources. Parts run JOBS at a time (2); those that measure time run alone, at the end.

As root, each part has mount and process namespaces and a /dev/shm of its own: whatever a test leaves
behind, mounts and processes too, goes with them, also when the soak itself is killed. Left-overs are
counted before that, and make the part fail.
"""

# ruff: noqa: E501, T201
from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "soak"
LIMIT_S = 2400.0  # of one part; all together are to stay below an hour


@dataclass(frozen=True, slots=True)
class Part:
    """What is run for one promise.

    Attributes:
        name: as in `make soak PART=name`.
        what: for the table.
        select: arguments for pytest.
        alone: it measures time, so that nothing else may run beside it.
    """

    name: str
    what: str
    select: tuple[str, ...]
    alone: bool = False


CRASH = "tests/crash"
REPLICATE, REPLICATION = "tests/agent/replicate", "tests/e2e/replication"
SHARDS = "tests/e2e/test_sharded_kills.py"
PARTS = (
    Part("r1", "agent SIGKILL at random", (f"{CRASH}/test_agent_kill.py",)),
    Part("r3", "power cuts", (f"{CRASH}/test_power_cut.py",)),
    Part("master-power", "power cuts of the master (R24)", (f"{CRASH}/test_master_power_cut.py",)),
    Part("r1-calls", "agent SIGKILL at each call", (f"{CRASH}/test_each_call.py", "-k", "agent")),
    Part("r1-samples", "agent and trainer SIGKILL under samples", (f"{CRASH}/test_samples_kill.py",)),
    Part("r2", "trainer SIGKILL at random", (f"{CRASH}/test_trainer_kill.py",)),
    Part("r2-calls", "trainer SIGKILL at each call", (f"{CRASH}/test_each_call.py", "-k", "trainer")),
    Part("r4", "damaged spools", (f"{CRASH}/test_corruption.py", f"{CRASH}/test_damaged_spool.py")),
    Part("r5", "full disks", (f"{CRASH}/test_disk_full.py", f"{CRASH}/test_full_master.py")),
    Part("r7", "failing fsync", (f"{CRASH}/test_fsync_error.py",)),
    Part("r8", "asynchronous exceptions", (f"{CRASH}/test_interrupts.py",)),
    Part("r11", "malformed peers", (f"{CRASH}/test_garbage.py",), alone=True),
    Part("r12", "hostile names", (f"{CRASH}/test_hostile_names.py",)),
    Part("r14", "freeze, clock, stop, upgrade (R17)", (f"{CRASH}/test_freeze_and_stop.py", f"{CRASH}/test_golden.py")),
    Part("r15", "forks", (f"{CRASH}/test_forks.py",)),
    Part("r24", "a fork killed at each call", (f"{CRASH}/test_fork_kill.py",)),
    Part("r16", "no code from data", (f"{CRASH}/test_no_code.py",)),
    Part("histories", "random histories of one stream", ("tests/property",)),
    Part("r9", "three days without a master", (f"{REPLICATION}/test_master_down.py",)),
    Part("r10-cuts", "a link cut at random bytes", (f"{REPLICATION}/test_soak.py", "-k", "cuts")),
    Part("r10", "black holes, 1 kB/s, full disk, kills", (f"{REPLICATION}/test_soak.py", "-k", "not cuts")),
    Part("replication", "quick forms, R18, many nodes", (REPLICATE, REPLICATION, *(
        f"--ignore={REPLICATION}/{name}.py" for name in ("test_master_down", "test_soak", "test_bucket")
    ))),
    Part("bucket", "a store that fails, damages in a bucket", (f"{REPLICATION}/test_bucket.py",)),
    Part("shards-one", "sharded saves of one machine, killed at chosen points", (SHARDS, "-k", "1-")),
    Part("shards-two", "the same of two that share the master alone", (SHARDS, "-k", "2-")),
    Part("mutants", "seeded faults", (f"{CRASH}/test_mutants.py",)),
    Part("r6", "slow and frozen disks", (f"{CRASH}/test_slow_disk.py",), alone=True),
    Part("r13", "a thousand clients", (f"{CRASH}/test_many_clients.py",), alone=True),
)  # fmt: skip


def sources() -> str:
    """A name for the state of everything that a part depends on."""
    digest = hashlib.sha256()
    for folder in ("rla_client", "rla_agent", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str:
    """Short name of the checked-out commit; empty outside of git."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def run_part(part: Part, state: str) -> dict[str, Any]:
    """Run one part and write its JSON; returns the same."""
    (OUT / "tmp").mkdir(parents=True, exist_ok=True)
    report, log, left = (OUT / f"{part.name}.{ending}" for ending in ("xml", "log", "left"))
    for path in (report, left):
        path.unlink(missing_ok=True)
    pytest = [
        sys.executable, "-m", "pytest", "-m", "", "-q", "-p", "no:cacheprovider", "--timeout", str(int(LIMIT_S)),
        "-o", "junit_logging=all", f"--junitxml={report}", f"--basetemp={OUT / 'tmp' / part.name}", *part.select,
    ]  # fmt: skip
    began, when = time.monotonic(), dt.datetime.now(dt.timezone.utc)
    with log.open("wb") as file:
        code = subprocess.run(
            enclosed(pytest, left) if os.geteuid() == 0 else pytest,
            cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "RLA_SOAK": "1"},
        ).returncode  # fmt: skip
    behind = left.read_text().splitlines() if left.exists() else []
    tests = read_report(report)
    found = {
        "part": part.name, "what": part.what, "passed": code == 0 and not behind and bool(tests),
        "exit": code, "left_behind": behind, "seconds": round(time.monotonic() - began, 1),
        "began": when.isoformat(timespec="seconds"), "commit": commit(), "sources": state,
        "cpus": os.cpu_count(), "load": os.getloadavg()[0], "tests": tests,
    }  # fmt: skip
    (OUT / f"{part.name}.json").write_text(json.dumps(found, indent=1))
    return found


def enclosed(command: list[str], left: Path) -> list[str]:
    """`command` in namespaces of its own; what it leaves behind there is listed in `left`."""
    script = (
        "mount -t tmpfs -o size=4g,mode=1777 rla-soak /dev/shm; "
        "grep -v ' /dev/shm ' /proc/mounts > /dev/shm/.before; "
        f"{shlex.join(command)}; code=$?; "
        f"{{ grep -v ' /dev/shm ' /proc/mounts | diff /dev/shm/.before - | grep '^>'; "
        "ls -A /dev/shm | grep -v '^.before$'; "
        "ps -eo pid=,args= | awk -v me=$$ '$1 != me' | grep -v -E 'ps -eo|awk |grep |\\{ ' | grep -E 'rla_|workload'; } "
        f"> {shlex.quote(str(left))}; exit $code"
    )
    return [
        "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
        "sh", "-c", script,
    ]  # fmt: skip


def read_report(path: Path) -> list[dict[str, Any]]:
    """Name, outcome, seconds and printed lines of each test."""
    if not path.exists():
        return []
    tests = []
    for case in ET.parse(path).iter("testcase"):
        outcome = next((e.tag for e in case if e.tag in {"failure", "error", "skipped"}), "passed")
        told = [
            line
            for element in case.iter("system-out")
            for line in (element.text or "").splitlines()
            if line.strip() and not line.startswith("---")
        ]
        tests.append(
            {
                "name": case.get("name"),
                "outcome": outcome,
                "seconds": float(case.get("time", 0)),
                "told": told,
            }
        )
    return tests


def earlier_run(part: Part) -> dict[str, Any] | None:
    """Figures of the last run."""
    try:
        found: dict[str, Any] = json.loads((OUT / f"{part.name}.json").read_text())
    except (OSError, ValueError):
        return None
    return found


def known(part: Part, state: str) -> dict[str, Any] | None:
    """Figures of an earlier run on the same sources, if it passed."""
    found = earlier_run(part)
    return found if found is not None and found["passed"] and found["sources"] == state else None


def show(found: dict[str, Any], *, again: bool = False) -> None:
    """One line of the table, and the figures below it."""
    counts: dict[str, int] = {}
    for test in found["tests"]:
        counts[test["outcome"]] = counts.get(test["outcome"], 0) + 1
    outcome = "passed" if found["passed"] else "FAILED"
    print(
        f"{found['part']:12} {outcome:7} {found['seconds']:7.0f} s  {found['what']}: {counts}{' (earlier)' if again else ''}"
    )
    for test in found["tests"]:
        if test["outcome"] in {"failure", "error"}:
            print(f"             failed: {test['name']}; see {OUT / found['part']}.log")
        for line in test["told"]:
            print(f"             {line[:200]}")
    for line in found["left_behind"]:
        print(f"             left behind: {line}")
    sys.stdout.flush()


def show_known(parts: list[Part], state: str) -> int:
    """The table of what was run so far; 1 when a part is missing or failed."""
    missing = 0
    for part in parts:
        found = earlier_run(part)
        if found is None:
            print(f"{part.name:12} not run yet: {part.what}")
        else:
            found["what"] += (
                ""
                if found["sources"] == state
                else f" (other sources: {found['commit']} of {found['began']})"
            )
            show(found, again=True)
        missing += found is None or not found["passed"]
    return 1 if missing else 0


def main() -> int:
    """Run what is asked for; 1 when a part failed."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("part", nargs="*", help=", ".join(part.name for part in PARTS))
    parser.add_argument("--fresh", action="store_true", help="also parts that passed on these sources")
    parser.add_argument("--show", action="store_true", help="run nothing; tell what is known")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    unknown = set(options.part) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    state, began = sources(), time.monotonic()
    wanted = [part for part in PARTS if not options.part or part.name in options.part]
    if options.show:
        return show_known(wanted, state)
    todo = []
    failed = 0
    for part in wanted:
        earlier = None if options.fresh else known(part, state)
        if earlier is None:
            todo.append(part)
        else:
            show(earlier, again=True)
    for parts, jobs in (([p for p in todo if not p.alone], options.jobs), ([p for p in todo if p.alone], 1)):
        with ThreadPoolExecutor(jobs) as pool:
            for found in pool.map(lambda part: run_part(part, state), parts):
                show(found)
                failed += not found["passed"]
    print(f"{len(wanted)} parts, {failed} failed, {(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
