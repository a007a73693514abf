"""Runner of scripts that import RLA.

    python -m rla_client.compat train.py --lr 0.001

Modules named `RLA`, `RLA.easy_log.logger`, … have the names of the original's modules, implemented by
rla_client. They take precedence over an installed original, in this process only.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rla_client.compat.old_modules import install


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m rla_client.compat SCRIPT [ARGUMENT …]`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in ([], ["-h"], ["--help"]):
        sys.stdout.write(f"{(__doc__ or '').strip()}\n")
        return 0 if words else 2
    if not os.path.isfile(words[0]):
        sys.stderr.write(f"rla_client.compat: there is no script {words[0]}\n")
        return 2
    install()
    warnings.filterwarnings("ignore", message=".* is the older name of .*")
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    sys.path.insert(1, str(Path(__file__).parents[1] / "old_names"))  # spawned processes inherit it
    runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
