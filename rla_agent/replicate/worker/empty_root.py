"""Detection of unmounted roots on the master."""

from __future__ import annotations

from typing import Final

from rla_agent.replicate.backend.errors import DeniedError, LinkError, MissingError, TransientError
from rla_agent.replicate.backend.session import TargetSession

_OWN_NAMES: Final = b".rla-"
_UNMOUNTED: Final = "mount its disk; or, to go on in an empty one, put a file into it"


def check_mounted(session: TargetSession) -> None:
    """Check that a root to which files were sent is not empty; one that may not be listed passes.

    The agents' own files (`.rla-…`) do not count: they may have been written into an empty mount point.

    Raises:
        LinkError: it is empty, or cannot be listed now.
    """
    try:
        found = session.listing(b"")
    except DeniedError:
        return
    except (TransientError, MissingError) as error:
        raise LinkError("look at", b"", str(error)) from error
    if all(name.startswith(_OWN_NAMES) for name, _ in found):
        raise LinkError("look at", b"", "it is empty, though files were sent there", _UNMOUNTED)
