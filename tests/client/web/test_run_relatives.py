"""Parents and children of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.one_run import TABLE, name, rewrite
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


@pytest.mark.slow
def test_parents_and_children(root: Path, make_run: MakeRun, server: PageServer, index: str) -> None:
    fork, later, other = make_run(number=1), make_run(number=2), make_run(number=3)
    rewrite(root, other, "run.json", parent={"run": index, "table": TABLE, "time_step": 2})
    rewrite(root, fork, "run.json", parent={"run": index, "table": TABLE, "time_step": 5})
    rewrite(
        root,
        later,
        "run.json",
        parent={"run": fork, "table": TABLE, "time_step": 7, "rows": 3, "chain": True},
    )

    def children(of: str) -> list[tuple[str, bool]]:
        return [(one["path"], one["chain"]) for one in server.ask("run", {"run": name(of)})["children"]]

    # the list knows of them after its next look; what the files say is read at once
    wait_until(lambda: children(fork) == [(name(later), True)] and children(index) == [(name(other), False)])
    last = server.ask("run", {"run": name(later)})
    assert [(one["path"], one["chain"], one["step"]) for one in last["parents"]] == [
        (name(fork), True, 7),
        (name(index), False, 5),
    ]
    assert last["chain"] == 2


@pytest.mark.parametrize("parent", ["itself", "/etc", "../x", 5, "a/../../b"])
def test_a_parent_that_is_none_ends_the_list(root: Path, server: PageServer, index: str, parent: Any) -> None:
    told = {"run": index if parent == "itself" else parent, "table": TABLE, "chain": True}
    rewrite(root, index, "run.json", parent=told)
    assert server.ask("run", {"run": name(index)})["parents"] == []
