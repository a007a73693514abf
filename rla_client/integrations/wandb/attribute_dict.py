"""Dict with attribute access, as wandb's scripts use it."""

from __future__ import annotations

from typing import Any

from rla_client.adapter import Joined


class AttributeDict(dict[str, Any]):
    """A dict whose items are attributes, too, and that is told of what is set, inside of its run."""

    def __init__(self, *content: Any, joined: Joined | None = None) -> None:
        super().__init__(*content)
        vars(self)["_joined"] = joined or Joined()

    def update(self, *args: Any, **further: Any) -> None:
        """Set several."""
        dict.update(self, *args, **further)
        with vars(self)["_joined"].active():
            self.changed(dict(*args, **further))

    def as_dict(self) -> dict[str, Any]:
        """A plain copy."""
        return dict(self)

    _as_dict = as_dict  # of the summary in wandb, which prime-rl saves

    def changed(self, values: dict[str, Any]) -> None:
        """Several were set."""
        raise NotImplementedError

    def end(self) -> None:
        """Write nothing any more: the run has ended, and what is open is another one."""
        vars(self)["changed"] = lambda _: None

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    __setattr__ = __setitem__

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"there is no {key!r}") from None

    def __reduce__(self) -> tuple[Any, ...]:  # a copy is a plain dict
        return dict, (dict(self),)
