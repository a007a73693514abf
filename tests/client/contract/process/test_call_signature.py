from __future__ import annotations

import sys
from typing import Any

from rla_client.contract.process.call_signature import signature_of

LAZILY = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"


def test_an_annotation_may_name_what_is_not_there() -> None:
    names: dict[str, Any] = {}
    exec(
        compile(LAZILY + "def run(a: Missing, b: int = 1) -> Missing: ...", "run.py", "exec", 0, True), names
    )
    found = signature_of(names["run"])
    assert list(found.parameters) == ["a", "b"]
    assert found.parameters["b"].default == 1
