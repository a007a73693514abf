"""A run of another process, joined by its address."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import NotConfiguredError
from rla_client.init_run import describe
from rla_client.manager import current_data, exp_manager, open_beside
from rla_client.run.close import entered
from rla_client.run.run_mode import disabled
from rla_client.run_handle import OpenRun
from rla_client.stream import run_scope as scopes

if TYPE_CHECKING:
    from rla_client.run.run_data import RunData


def run_address() -> str:
    """The address of the open run, by which other processes `join` it while it is open, here or elsewhere.

    Plain text, for an argument or a variable, of a few hundred characters. Empty where this process stores
    nothing (RLA_MODE=disabled, ranks above 0): who joins that stores nothing either.

    Raises:
        NotConfiguredError: no run is open.
    """
    current = logger.get_current()
    if not current.address and exp_manager.run is None:
        raise NotConfiguredError("no run is open: call rla_client.init(...) before rla_client.run_address()")
    return current.address


@scopes.opening()
def join(address: str, role: str = "") -> OpenRun:
    """Take part in a living run that another process opened, as an actor or a worker does.

        rla_client.join(address, role="rollout-3")  # address: what rla_client.run_address() gave there
        rla_client.log({"reward": 0.5}, step=3)

    What is logged from here on is written to the run's `progress.<role>.csv`; readers call such a metric
    `reward@rollout-3`. Media go into a folder `<role>` of the run's results; checkpoints and hyper-parameters
    are those of the process that opened it. It joins at once or raises: nothing is waited for.

    On another machine than that process's, this one writes a part of the run: the same index below this
    machine's own data root, the role with the machine's name behind it. On the master it is one run.

    Args:
        address: see `run_address`.
        role: name of this writer; where another one has it, with a number behind it. Default its rank or
            process number.

    Returns:
        Its handle, as `init` gives one.

    Raises:
        ArgumentError: this is no address, or no role.
        NoSuchRunError: no such run lives on the machine that its address names, where that is this one; or a
            copy of the run lies where this machine would write.
    """
    from rla_client.run import join_run  # noqa: PLC0415 - not at import of the package
    from rla_client.run.unstored_run import begin_storing_nothing  # noqa: PLC0415

    if role:
        join_run.check_role(role)
    former = current_data()
    opened = OpenRun(former.successor())
    if not address or disabled():
        describe(opened, "joined", rla_config={}, code_root=os.curdir)
        open_beside(former, opened._data, opens=partial(begin_storing_nothing, all_ranks=False))  # noqa: SLF001 - its own
        return opened
    elsewhere = join_run.told_elsewhere(address)
    if elsewhere is not None:
        describe(opened, elsewhere.table)

        def opens_part(data: RunData) -> None:
            with entered(data):
                join_run.join_part(data, address, elsewhere, role)

        open_beside(former, opened._data, opens=opens_part)  # noqa: SLF001 - its own
        return opened
    opening = join_run.living_run(address)
    has_config = opening.config is not None and os.path.exists(opening.config)
    config: str | dict[str, Any] | None = opening.config if has_config else {}
    describe(
        opened, opening.table or "joined", data_root=opening.root, rla_config=config, code_root=os.curdir
    )

    def opens(data: RunData) -> None:
        with entered(data):
            join_run.open_joined(data, address, opening, role)

    open_beside(former, opened._data, opens=opens)  # noqa: SLF001 - its own
    return opened
