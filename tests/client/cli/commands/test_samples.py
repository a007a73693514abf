"""`rla samples`: the list on a terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from support.sampled import write_samples

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]


def test_a_text_of_several_lines_is_one_line_of_the_list(rla: Rla, root: Path, make_run: MakeRun) -> None:
    write_samples(
        root, "task", make_run(), [(3, [{"prompt": "a\n\n\tb", "completion": "c\r\nd", "reward": 1}])]
    )
    row = rla("samples", "-d", str(root)).stdout.splitlines()[1]
    assert row.split() == ["0", "3", *row.split()[2:3], "1", "a", "b", "c", "d"]
    (found,) = json.loads(rla("samples", "-d", str(root), "--json").stdout)
    assert (found["prompt"], found["completion"]) == ("a\n\n\tb", "c\r\nd")
