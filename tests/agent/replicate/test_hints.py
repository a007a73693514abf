from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import example, given, strategies

from rla_agent.replicate.file_state import Owned
from rla_agent.replicate.hints import Announcer, FileHint, Listener, parse_hint
from rla_agent.replicate.worker.committed import Committed
from rla_agent.store.agent_db import AgentDatabase


def state_folder(tmp_path: Path) -> Path:
    state = tmp_path / ("deep" * 30)  # longer than sun_path holds
    (state / "replicate").mkdir(parents=True)
    return state


def test_hints_arrive_also_in_a_deep_folder(tmp_path: Path) -> None:
    state = state_folder(tmp_path)
    announcer = Announcer(state)
    announcer.now(["/nobody/listens"])
    listener = Listener(state)
    announcer.committed([("/d/log/progress.csv", 1, 77, True), ("/d/\udcff", 0, 1, False)])
    announcer.placed(["/d/run.json"])
    announcer.now([])
    assert listener.receive() == [
        FileHint(outputs=((b"/d/log/progress.csv", Owned(1, 77, True)), (b"/d/\xff", Owned(0, 1, False)))),
        FileHint(files=(b"/d/run.json",)),
        FileHint(),
    ]
    announcer.committed((f"/d/{number}", 0, 1, False) for number in range(1000))
    assert sum(len(hint.outputs) for hint in listener.receive()) == 1000
    announcer.close()
    listener.close()


@given(
    strategies.binary(max_size=200)
    | strategies.recursive(
        strategies.none() | strategies.integers() | strategies.text(), strategies.lists, max_leaves=5
    ).map(lambda value: json.dumps({"outputs": value, "files": value, "now": value}).encode())
)
@example(b"[" * 50_000)
@example(b'{"outputs": [["/d/x", Infinity, 1, false]]}')
def test_any_message_is_survived(message: bytes) -> None:
    assert isinstance(parse_hint(message), FileHint)


@pytest.mark.parametrize("name", ["plain", "a#b?mode=memory&100%"])
def test_agent_db_is_the_truth_that_lost_hints_leave(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    state = state_folder(tmp_path / name)
    committed = Committed(state)
    assert committed.lookup(b"/d/progress.csv") is None
    AgentDatabase(state / "agent.db")
    db = sqlite3.connect(state / "agent.db")
    db.execute(
        "INSERT INTO outputs(stream, name, path, generation, size, number, offset, state) "
        "VALUES('s', 'csv', '/d/progress.csv', 2, 500, 0, 0, '')"
    )
    db.commit()
    assert committed.lookup(b"/d/progress.csv") == Owned(2, 500, False)
    committed.hint(b"/d/progress.csv", Owned(2, 450, False))  # of an earlier commit
    assert committed.lookup(b"/d/progress.csv") == Owned(2, 500, False)
    db.execute("UPDATE outputs SET generation = 3, size = 400")
    db.commit()
    assert committed.lookup(b"/d/progress.csv") == Owned(3, 400, False)
    committed.hint(b"/d/progress.csv", Owned(3, 400, False))
    db.execute("ALTER TABLE outputs RENAME TO elsewhere")
    db.commit()
    assert committed.lookup(b"/d/progress.csv") == Owned(3, 400, False)  # agent.db cannot be read
    db.execute("ALTER TABLE elsewhere RENAME TO outputs")
    db.execute("DELETE FROM outputs")
    db.commit()
    assert committed.lookup(b"/d/progress.csv") is None  # the stream has ended: the file is the truth
    committed.close()
    db.close()
