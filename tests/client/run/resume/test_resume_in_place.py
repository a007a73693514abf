"""A run that its own process opens once more."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from rla_client import exp_manager
from rla_client.contract.agent.places import Places
from rla_client.run.resume.resume_in_place import go_on


def test_custom_data_is_there_before_an_agent_has_written_it(places: Places, tmp_path: Path) -> None:
    """What was read of the files was that of the run before the last, or nothing."""
    places.stopped_marker.touch()  # no agent is started
    config = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": []}}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path)
    exp_manager.log_files_gen()
    data = exp_manager._data
    for part in range(3):
        exp_manager.add_custom_data("parts", part)
        ended = exp_manager.run
        exp_manager.close()
        assert ended is not None
        assert not exp_manager.custom_data
        assert go_on(data, ended)
    assert exp_manager.get_custom_data("parts") == [0, 1, 2]


class Buffer(dict[str, object]):
    """Something large."""


def test_custom_data_of_runs_that_nobody_opens_again_is_let_go(places: Places, tmp_path: Path) -> None:
    """A process that trains one seed after another would hold all their replay buffers."""
    places.stopped_marker.touch()  # no agent is started
    config = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": []}}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path)
    held = []
    for _ in range(3):
        exp_manager.log_files_gen()
        buffer = Buffer()
        held.append(weakref.ref(buffer))
        exp_manager.add_custom_data("buffer", buffer, mode="replace")
        del buffer
        exp_manager.close()
    exp_manager.log_files_gen()
    gc.collect()
    assert [ref() for ref in held] == [None, None, None]
    exp_manager.close()
