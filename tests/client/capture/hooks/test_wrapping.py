from __future__ import annotations

import inspect
import sys
from typing import Any

from rla_client.capture.hooks.wrapping import dress

LAZILY = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"


def test_a_wrapper_is_dressed_as_a_function_whose_annotations_cannot_be_evaluated() -> None:
    names: dict[str, Any] = {}
    text = LAZILY + 'def add(self, tag: Missing, step: int = 0) -> Missing:\n    "Add."\n'
    exec(compile(text, "library.py", "exec", 0, True), names)

    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    dress(wrapper, names["add"])
    assert (wrapper.__name__, wrapper.__doc__) == ("add", "Add.")
    assert list(inspect.getfullargspec(wrapper).args) == ["self", "tag", "step"]
    assert len(wrapper.__signature__.parameters) == 3  # type: ignore[attr-defined]


def test_annotations_that_were_given_as_a_dict_stay() -> None:
    def add(tag: int) -> None: ...

    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    add.__annotations__ = {"tag": str}
    dress(wrapper, add)
    assert wrapper.__annotations__ == {"tag": str}
