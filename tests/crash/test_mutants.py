"""Seeded faults: each must make a named test fail, or that test is worth nothing.

A mutant is a copy of both packages with one text replaced; the test runs against the copy. A mutant whose
text is not found fails here, so that this list follows the code.
"""

# ruff: noqa: E501 - one mutant, one line
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before` in `file` becomes `after`; `test` must notice."""

    name: str
    file: str
    before: str
    after: str
    test: str


HISTORY = "tests/property/test_stream_recovery.py"
MUTANTS = (
    Mutant("no fsync", "rla_agent/pipeline/group_commit.py", "os.fdatasync(descriptor)", "assert descriptor", "tests/crash/test_fsync_error.py"),
    Mutant(
        "failed sync forgotten", "rla_agent/pipeline/group_commit.py", "        output.distrust(self._files)\n        self._rebuild(stream, output)",
        "        output.synced()", "tests/agent/pipeline/test_group_commit.py",
    ),
    Mutant(
        "position stored before data", "rla_agent/outputs/output_file.py",
        "return not self.dirty and self.state not in _UNSTORABLE", "return self.state is not OutputState.REWRITING",
        "tests/agent/pipeline/test_group_commit.py",
    ),
    Mutant(
        "segment deleted before commit", "rla_agent/pipeline/segment_base.py", "low = stream.all_durable.number", "low = stream.position.number",
        HISTORY,
    ),
    Mutant(
        "no dedupe", "rla_agent/pipeline/stream.py", "output.position == start and not output.blocked", "not output.blocked",
        HISTORY,
    ),
    Mutant(
        "no CRC check", "rla_agent/model/frame_decoder.py", "crc32(payload, seed) == crc:", "crc32(payload, seed) is not None:", "tests/crash/test_corruption.py",
    ),
    Mutant("no lock", "rla_agent/service/agent_lock.py", "            lock_record(self._descriptors[0])\n", "            assert lock_record\n", "tests/crash/test_freeze_and_stop.py"),
    Mutant("no lock of the spool's folder", "rla_agent/service/agent_lock.py", "try_lock(descriptor, timeout_s=LOSER_S)", "try_lock(descriptor, shared=True, timeout_s=LOSER_S)", "tests/crash/test_one_owner.py"),
    Mutant("removed on the word of one access", "rla_agent/pipeline/data_root_watch.py", "removed = not item_is_there(opening) and (same_root(opening) or _all_unlinked(stream, files))", "removed = True", "tests/agent/pipeline/test_data_root_watch.py"),
    Mutant("no inode check of the lock", "rla_agent/service/agent_lock.py", "            if identity_of(found) != identity:", "            if not identity:", "tests/crash/test_one_owner.py"),
    Mutant("blobs not counted", "rla_client/contract/spool/segments.py", "                    size, _, when = stream_size(entry.path)", "                    size, when = 0, 0.0", "tests/client/stream/test_quota.py"),
    Mutant("stale size on recovery", "rla_agent/outputs/output_file.py", "            os.ftruncate(descriptor, self.size)\n        elif", "            self.size = real\n        elif", HISTORY),
    Mutant("no directory fsync", "rla_client/contract/filesystem/atomic_write.py", "    _fsync(path, os.O_DIRECTORY)", "    assert path", "tests/crash/test_fsync_error.py -k named"),
    Mutant("writes not checked", "rla_agent/replicate/backend/sftp_batch.py", "            elif self._results[number] is None:\n                self._results[number] = self._calls.problem(reply, operation, self._files[number].path)", "            else:\n                assert reply", "tests/crash/test_full_master.py"),
    Mutant("host key taken as it comes", "rla_agent/replicate/backend/host_keys.py", "if any(entry == key for _, entry in known):", "if key:", "tests/agent/replicate/backend/test_host_keys.py"),
    Mutant("raw names joined to paths", "rla_client/contract/safe_names.py", 'if part in {".", ".."}:', 'if part == ".":', "tests/crash/test_hostile_names.py -k frames"),
    Mutant("only the oldest segment's base", "rla_agent/pipeline/segment_base.py", "for number in reversed(segment_numbers(stream.folder))", "for number in segment_numbers(stream.folder)[:1]", "tests/agent/pipeline/test_recovery.py"),
    Mutant("bases without their position", "rla_agent/outputs/output_file.py", '"position": list(self.position)}', '"position": [self.position.number, 0]}', "tests/agent/pipeline/test_recovery.py tests/e2e/test_replaced_files.py"),
    Mutant("retry without asking the file", "rla_client/stream/segment_writer.py", "if after >= 0 and self.frames != after:", "if False:", "tests/client/stream/test_outbox.py"),
    Mutant("unbounded waiting", "rla_client/stream/outbox.py", "if self._waiting_bytes > WAITING_MAX_BYTES and self._waiting:", "if False:", "tests/client/stream/test_outbox.py"),
    Mutant("write trusted when short", "rla_client/stream/segment_writer.py", "if written == length and self.frames == before:", "if self.frames == before:", "tests/client/stream/test_segment_writer.py"),
    Mutant("stream removed piece by piece", "rla_agent/pipeline/remove_stream.py", "        folder.rename(gone)\n", "        (folder / 'lock').unlink()\n", "tests/agent/pipeline/test_remove_stream.py"),
    Mutant("fetched files open to all", "rla_agent/replicate/transfer/fetched_modes.py", "bits = (PRIVATE_FILE if mode is None else mode) & folder_mode(folder) & ~umask()", "bits = 0o644", "tests/agent/replicate/transfer/test_pull.py"),
    Mutant("made files open to all", "rla_client/contract/filesystem/modes.py", "    return found & shared | PRIVATE_FILE\n", "    return shared\n", "tests/client/contract/filesystem/test_modes.py"),
    Mutant("paths of anybody", "rla_client/contract/filesystem/trusted_paths.py", "    return uid in {0, os.geteuid()} or", "    return uid >= 0 or", "tests/client/contract/filesystem/test_trusted_paths.py"),
    Mutant("links below a data root followed", "rla_client/contract/filesystem/safe_paths.py", "FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW", "FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY", "tests/client/contract/filesystem/test_safe_paths.py tests/agent/jobs/test_code_store.py"),
    Mutant("append without sum", "rla_agent/replicate/worker/planned_version.py", "    return owned or source.crc_of(record.acked) == record.crc", "    return True", "tests/agent/replicate/worker/test_send.py"),
    Mutant("no mode kept", "rla_agent/replicate/worker/planned_version.py", "    return 0o600 if source.local.mode is None else source.local.mode", "    return 0o644 if source else 0", "tests/e2e/replication/test_modes.py"),
    Mutant("checkpoints of anybody in full", "rla_client/checkpoint/pickle_trust.py", "if not run or stamp is None or stamp.run != run:", "if False:", "tests/client/test_loader.py tests/client/checkpoint/test_pickle_trust.py"),
)  # fmt: skip


def test_each_mutant_still_fits_the_code() -> None:
    missing = [one.name for one in MUTANTS if (ROOT / one.file).read_text().count(one.before) != 1]
    assert missing == [], "bring them along"
    tests = [word for one in MUTANTS for word in one.test.split() if word.startswith("tests/")]
    assert all((ROOT / path).exists() for path in tests)


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    for package in ("rla_client", "rla_agent"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "rla_config.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    file = tmp_path / mutant.file
    text = file.read_text()
    file.write_text(text.replace(mutant.before, mutant.after))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.test.split(" ")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1, f"nobody noticed: {done.stdout[-1500:]}"
    noticed = [
        line.split(" - ")[0].removeprefix("FAILED ")
        for line in done.stdout.splitlines()
        if line.startswith("FAILED")
    ]
    assert noticed, f"the test did not run: {done.stdout[-1500:]}"
    print(f"{mutant.name}: noticed by {noticed[0]}")
