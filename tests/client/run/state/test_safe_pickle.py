from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import BrokenFileError
from rla_client.run.state.safe_pickle import Placeholder, parse_pickle, read_pickle, to_plain

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(plain, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_of_every_protocol_comes_back(value: Any, protocol: int) -> None:
    assert parse_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_old_manager_gives_its_attributes(old_pickle: Callable[..., bytes], protocol: int) -> None:
    manager = parse_pickle(old_pickle(protocol))
    assert isinstance(manager, Placeholder)
    state = {key: to_plain(value) for key, value in manager.state.items()}
    assert state["hyper_param"] == {"lr": 0.1, "nested": {"a": [1, 2]}}
    assert state["custom_data"] == {"best": [1.5, 2.5]}
    assert state["record_date"] == datetime(2021, 3, 4, 5, 6, 7, 8)  # noqa: DTZ001
    assert "not loaded" in state["time_step_holder"]


def test_numpy_numbers_and_arrays_are_decoded_without_numpy() -> None:
    import numpy as np

    value = {"a": np.float32(0.5), "b": np.int64(-3), "c": np.arange(6.0).reshape(2, 3), "d": np.bool_(True)}
    found = to_plain(parse_pickle(pickle.dumps(value, 4)))
    assert found == {"a": 0.5, "b": -3, "c": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], "d": True}


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {os.environ['EVIL_MARK']}",)


def test_nothing_named_in_a_file_is_imported_or_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("EVIL_MARK", str(mark))
    imported = b"cantigravity\nsomething\n(tR."  # importing `antigravity` would start a browser
    file = tmp_path / "evil.pkl"
    file.write_bytes(pickle.dumps({"x": Evil(), "y": 1}))
    (tmp_path / "import.pkl").write_bytes(imported)
    script = """
import sys
seen = []
def hook(event, args):
    if event in {"pickle.find_class", "os.system"}:
        seen.append((event, args))
sys.addaudithook(hook)
from rla_client.run.state.safe_pickle import to_plain
from rla_client.run.state.safe_pickle import read_pickle
before = set(sys.modules)
print(to_plain(read_pickle(sys.argv[1])), to_plain(read_pickle(sys.argv[2])))
assert not seen, seen
assert "antigravity" not in sys.modules
assert set(sys.modules) - before <= {"encodings.raw_unicode_escape"}, set(sys.modules) - before
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(file), str(tmp_path / "import.pkl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not mark.exists()
    assert "posix.system object, not loaded" in done.stdout


def test_a_file_cut_anywhere_is_named_as_broken(old_pickle: Callable[..., bytes], tmp_path: Path) -> None:
    data = old_pickle()
    path = tmp_path / "cut.pkl"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(BrokenFileError, match=r"cut\.pkl"):
            read_pickle(path)


@given(st.binary(max_size=200))
def test_garbage_gives_an_error_or_a_value_and_never_anything_else(data: bytes) -> None:
    with suppress(ValueError):
        to_plain(parse_pickle(data))


@pytest.mark.slow
def test_a_cycle_and_a_bomb_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "…" in str(to_plain(parse_pickle(pickle.dumps(loop))))
    bomb: list[Any] = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    with pytest.raises(ValueError, match="more than"):
        to_plain(parse_pickle(pickle.dumps(bomb)))


def test_what_only_takes_memory_is_refused_before_it_is_built() -> None:
    names = b"".join(b"cm\nn%d\n0" % number for number in range(20_000))
    with pytest.raises(ValueError, match="more than 10000 names"):
        parse_pickle(names + b"N.")
    with pytest.raises(ValueError, match="memo number"):
        parse_pickle(b"Nr\xff\xff\xff\x7f.")
    with pytest.raises(ValueError, match="memo number"):
        parse_pickle(b"Np4000000000\n.")


def test_placeholders_answer_every_way_an_object_is_made() -> None:
    """NEWOBJ, NEWOBJ_EX, INST, OBJ, REDUCE, BUILD, persistent ids, an extension's code."""
    made = {
        "new": b"cm\nA\n(K\x01t\x81.",
        "new_ex": b"cm\nA\n(K\x01t}\x92.",
        "inst": b"(K\x01im\nA\n.",
        "obj": b"(cm\nA\nK\x01o.",
        "reduce": b"cm\nA\n(K\x01tR.",
    }
    for way, data in made.items():
        found: Any = parse_pickle(b"\x80\x04" + data)
        assert (repr(found), found.args) == ("<m.A object, not loaded>", (1,)), way
    built: Any = parse_pickle(b"cm\nA\n)R(N}X\x01\x00\x00\x00xK\x02stb.")
    assert built.state == {"x": 2}
    assert to_plain(parse_pickle(b"cm\nA\n.")) == "<m.A, not loaded>"
    named: Any = parse_pickle(b"K\x07Q.")
    assert named.args == (7,)
    with pytest.raises(ValueError, match="unregistered extension"):
        parse_pickle(b"\x82\x05.")
