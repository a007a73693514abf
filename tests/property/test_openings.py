"""Whatever an opening frame says, the agent goes on, and so do the other streams."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.spooled import stop_autostart

from rla_agent.service.control_client import ask_status
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import FrameKind, MessageKind, encode_frame, encode_message, pack
from rla_client.run.opening_frame import make_opening
from rla_client.stream.outbox import Outbox
from rla_client.stream.segment_writer import SegmentWriter

EXAMPLES = int(os.environ.get("RLA_TEST_OPENINGS", "60"))

EVIL: tuple[Any, ...] = (
    None, -1, 10**400, 1 << 63, 1 << 64, 1e308, float("inf"), float("-inf"), float("nan"), b"bytes", [], {},
    [[[1]]], {"x": {1: [None]}}, "", "x", "\0", "a\nb", "1e400", "../x", "/", "x" * 300, "/" * 5000,
    "/" + "x/" * 3000, "x" * 100_000,
)  # fmt: skip
VALUES = st.sampled_from(EVIL) | st.recursive(
    st.sampled_from(EVIL) | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)
IN_CONTINUES = ("rows", "time_step", "event_file", "event_size", "abandoned", "began", "ran_s")
CONTINUES = st.dictionaries(st.sampled_from(IN_CONTINUES), VALUES)
FOLDERS = st.dictionaries(st.sampled_from(["log", "checkpoint", "results"]), VALUES, max_size=3)
NAMES = st.dictionaries(st.sampled_from(["csv", "log", "json", "warn", "tensorboard"]), VALUES, max_size=3)
OTHERS = ("continues", "parent", "launch", "run_key", "replicate", "master")  # a client may leave them out


def mutations(fields: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields with other values; those with a shape of their own often keep it."""
    shaped = {"continues": CONTINUES, "folders": FOLDERS, "names": NAMES}
    one = st.sampled_from(fields).flatmap(
        lambda name: st.tuples(st.just(name), shaped.get(name, VALUES) | VALUES)
    )
    return st.lists(one, min_size=1, max_size=3).map(dict)


class Bench:
    """A real agent, a good run, and bad streams beside it."""

    def __init__(self, places: Places, agent: Any, folder: Path) -> None:
        self.places = places
        self.agent = agent
        self.folder = folder
        self.good = self._outbox("good")
        self.rows = 0
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"ipc://{places.data_socket}")

    def opening(self, name: str) -> Opening:
        root = self.folder / name
        (root / "log").mkdir(parents=True, exist_ok=True)
        return make_opening(
            root=root,
            folders={"log": "log"},
            sinks=["csv", "tensorboard"],
            names={},
            item={"table": "t", "index": name},
        )

    def _outbox(self, name: str) -> Outbox:
        return Outbox(self.places, self.opening(name), AgentConfig(autostart=False))

    def bad(self, changes: dict[str, Any]) -> None:
        """A stream with a changed opening frame and a row, named to the agent at once."""
        fields = {**self.opening("bad").to_fields(), **changes}
        frame = encode_frame(FrameKind.OPEN, pack({**fields, "segment": 1, "rows": 0, "lost": 0, **changes}))
        writer = SegmentWriter(self.places.spool, lambda _number, _rows: frame)
        writer.append(encode_frame(FrameKind.ROW, pack([1, time.time(), {"x": 1}])), 1)
        self._socket.send(encode_message(MessageKind.HINT, {"s": writer.name, "n": 1, "o": 0}))
        writer.close()

    def check(self) -> None:
        """The agent lives, answers, and takes in rows of the good run."""
        self.rows += 1
        row = pack([self.rows, time.time(), {"x": self.rows}])
        assert self.good.put(FrameKind.ROW, row, time.time(), 1)
        assert self.good.flush(60)
        assert ask_status(self.places, 60)["agent"]["pid"] == self.agent.pid

    def end(self) -> None:
        """All of it once more in an agent that finds them in the spool; no row is missing."""
        self.check()
        assert "Traceback" not in self.places.log.read_text()
        self.agent.restart()
        self.check()
        self.good.close("finished", "")
        csv = self.folder / "good" / "log" / "progress.csv"
        assert len(csv.read_text().splitlines()) == self.rows + 1

    def close(self) -> None:
        self.good.close("finished", "")
        self._socket.close(linger=0)


@pytest.fixture
def bench(places: Places, new_agent: Callable[..., Any], tmp_path: Path) -> Iterator[Bench]:
    stop_autostart(places)
    made = Bench(places, new_agent().start(), tmp_path)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.further
def test_no_value_of_a_field_ends_the_agent(bench: Bench) -> None:
    """Each field with each value; what hypothesis mixes comes below."""
    names = sorted({*bench.opening("bad").to_fields(), *OTHERS})
    for value in EVIL:
        for name in names:
            bench.bad({name: value})
        for name in IN_CONTINUES:
            bench.bad({"continues": {name: value}})
        bench.check()
    bench.end()


@pytest.mark.slow
def test_no_opening_frame_ends_the_agent(bench: Bench) -> None:
    names = sorted({*bench.opening("bad").to_fields(), *OTHERS})

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(mutations(names), min_size=1, max_size=4))
    def holds(changes: list[dict[str, Any]]) -> None:
        if not bench.agent.alive:  # a smaller example is being looked for
            for folder in bench.places.spool.iterdir():
                if folder != bench.good.stream_folder:
                    folder.rename(bench.folder / f"aside-{folder.name}")
            bench.agent.start()
        for change in changes:
            bench.bad(change)
        bench.check()

    holds()
    bench.end()
