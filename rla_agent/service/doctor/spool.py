"""Findings about spools of this user."""

from __future__ import annotations

from collections.abc import Iterator

from rla_agent.model.problem import WITHOUT_AGENT, Finding
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.doctor.surroundings import Surroundings
from rla_agent.service.other_spools import left_behind
from rla_client.contract.errors import RlaError, SpoolError
from rla_client.contract.spool.segments import check_stream, spool_bytes, stream_names
from rla_client.contract.spool.writer_liveness import writer_alive

FULL_PART = 0.8  # of spool_max_bytes


def check_spool(around: Surroundings) -> Iterator[Finding]:
    """What waits in the spool, and whether it can be read."""
    spool = around.places.spool
    try:
        names, used = stream_names(spool, links=True), spool_bytes(spool)
    except OSError:
        return
    limit = around.config.agent.spool_max_bytes
    if used > FULL_PART * limit:
        what = f"the spool holds {used >> 20} MiB of {limit >> 20} MiB; beyond, new rows are lost"
        fix = "see what it waits for: rla-agent status; or raise AGENT.spool_max_bytes"
        yield Finding("spool-full", "warning", what, fix)
    for name in names:
        try:
            check_stream(spool / name)
        except FileNotFoundError:
            continue
        except SpoolError as error:
            yield Finding("spool-foreign", "fault", str(error), f"sudo rm -r {spool / name}")
            continue
        try:
            read_opening(spool / name)
        except FileNotFoundError:
            continue
        except (RlaError, OSError) as error:
            yield Finding("spool-damaged", "fault", str(error), f"mv {spool / name} ~/")
    waiting = [name for name in names if writer_alive(spool / name) is False]
    if waiting and not around.alive:
        what = f"rows of {len(waiting)} ended process(es) wait in {spool}, and no agent runs"
        yield Finding("spool-waiting", "warning", what, WITHOUT_AGENT)


def check_other_states(around: Surroundings) -> Iterator[Finding]:
    """Spools under other host names of this machine, or of other machines, that nobody takes in."""
    for found in left_behind(around.places):
        yield Finding("spool-elsewhere", "warning", found["what"], found["fix"])
