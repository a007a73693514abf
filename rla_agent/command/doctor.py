"""Command `rla-agent doctor`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from rla_agent.command.failures import EXIT_CONFIG, EXIT_FAILED, fail
from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, JsonOption
from rla_client.contract.text.command_line import columns, examples


@app.command(epilog=examples("rla-agent doctor", "rla-agent doctor --master --config rla_config.yaml"))
def doctor(
    as_json: JsonOption = False,
    config: ConfigOption = None,
    master: Annotated[
        bool, typer.Option("--master", help="Check the connection to the master that the config names.")
    ] = False,
) -> None:
    """Check everything that the agent depends on; each finding says how to fix it."""
    from rla_agent.service.doctor.examination import examine, report  # noqa: PLC0415 - only here
    from rla_agent.service.doctor.surroundings import Surroundings  # noqa: PLC0415 - only here

    surroundings = Surroundings.here(config)
    if master and surroundings.config_faults:
        fail("\n".join(surroundings.config_faults), EXIT_CONFIG)
    if master:
        from rla_agent.replicate.doctor_master import examine_master  # noqa: PLC0415 - paramiko
        from rla_agent.replicate.registry import folder  # noqa: PLC0415

        findings = examine_master(surroundings.config, folder(surroundings.places.state))
    else:
        findings = examine(surroundings)
    if as_json:
        typer.echo(json.dumps({"format": 1, "findings": [asdict(one) for one in findings]}, indent=2))
    else:
        typer.echo(report(findings, columns(sys.stdout)))
    if any(finding.level != "note" for finding in findings):
        raise typer.Exit(EXIT_FAILED)
