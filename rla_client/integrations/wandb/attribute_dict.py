"""Dict with attribute access, as in wandb."""

from __future__ import annotations

from typing import Any

from rla_client.adapter import Joined


class AttributeDict(dict[str, Any]):
    """A dict whose items are also attributes; it calls `changed` for new values, in its run's scope."""

    def __init__(self, *content: Any, joined: Joined | None = None) -> None:
        super().__init__(*content)
        vars(self)["_joined"] = joined or Joined()

    def update(self, *args: Any, **further: Any) -> None:
        """Set several items."""
        dict.update(self, *args, **further)
        with vars(self)["_joined"].active():
            self.changed(dict(*args, **further))

    def as_dict(self) -> dict[str, Any]:
        """A plain copy."""
        return dict(self)

    _as_dict = as_dict  # a private method of wandb's summary, which prime-rl calls

    def changed(self, values: dict[str, Any]) -> None:
        """Handle new values."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop calling `changed`, as the run has ended and another one may be open."""
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
