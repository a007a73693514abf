"""Whether an item is on its master, asked of the agent: who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.hung_folder import hung, needs_hung_folder

from rla_agent.replicate.agent_side import Replication
from rla_agent.replicate.registry import register
from rla_agent.store.config_reader import ConfigReader
from rla_client.contract.agent.places import Places


@needs_hung_folder
def test_a_configuration_on_a_server_that_hangs_holds_up_no_other_question(
    places: Places, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    answers: dict[str, bool | None] = {}
    replication = Replication(places, ConfigReader())

    def ask(name: str) -> None:
        replication.ask_arrived(
            str(tmp_path / name), "table/run", lambda found: answers.update({name: found})
        )

    for name in ("far", "near"):
        (tmp_path / name).mkdir()
        config = tmp_path / name / "rla_config.yaml"
        config.write_text("SEND_LOG_FILE: false\n")
        register(places.state, tmp_path / name, config)
    with hung(tmp_path / "far"):
        ask("far")
        ask("near")
        wait_until(lambda: len(answers) == 2, what="both answers")
    assert answers == {"far": False, "near": None}
    replication.stop(1.0)
