"""Process that fetches on the agent's behalf.

So the agent itself needs no SSH:

    python -m rla_agent.replicate.transfer.fetch_process  < {"state", "folder", "name", "config"}  > JSON

`{"state", "resume"}` asks for a run instead of a pruned file, `{"state", "sharded", "config", "root",
"order"}` for a sharded checkpoint, `{"state", "settle", "config"}` for a check whether waiting ones of a
folder are complete by now, `{"state", "meet"}` for the description by rank 0 of a job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.transfer.fetch_pruned import fetch_back, fetch_sharded_back, settle_parts
from rla_agent.replicate.transfer.fetch_run import fetch_unfinished
from rla_agent.replicate.transfer.rank_zero_run import read_job_file
from rla_client.contract.errors import FETCH_KINDS, RlaError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; failures are returned as text."""
    try:
        if "resume" in request:
            return fetch_unfinished(Path(request["state"]), request["resume"])
        if "meet" in request:
            return read_job_file(Path(request["state"]), request["meet"])
        state, config = Path(request["state"]), request.get("config")
        if "settle" in request:
            settle_parts(state, Path(str(request["settle"])), config)
            size = 0
        elif "sharded" in request:
            path, order = Path(str(request["sharded"])), request.get("order")
            size = fetch_sharded_back(state, path, config, root=request.get("root"), order=order)
        else:
            size = fetch_back(state, str(request["folder"]), str(request["name"]), config)
    except TargetError as error:
        hint = f"; {error.hint}" if error.hint else ""
        return {"error": f"the fetch from the master failed: {error}{hint}"}
    except (RlaError, OSError) as error:
        flags = {flag: True for flag, kind in FETCH_KINDS.items() if isinstance(error, kind)}
        return {"error": str(error), **flags}
    return {"bytes": size}


def main() -> int:
    """The process's entry."""
    found = answer(json.load(sys.stdin))
    json.dump(found, sys.stdout)
    return 1 if "error" in found else 0


if __name__ == "__main__":
    sys.exit(main())
