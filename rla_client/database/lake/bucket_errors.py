"""Errors of a bucket's store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rla_client.contract.bucket_list import UnlistableError
from rla_client.contract.errors import DatabaseError

NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_ADVICE: Final = (  # words in an error of the library → hint for the user
    (NO_BUCKET, "there is no such bucket"),
    (
        ("relative URL without a base", "Unable to recognise URL"),
        "an address is s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
    ),
    (
        ("169.254.169.254", "metadata.google"),
        "credentials come from the environment (AWS_ACCESS_KEY_ID …) or a role",
    ),
    (("error sending request",), "is the store up, and --endpoint right?"),
)


@contextmanager
def bucket_errors(address: str) -> Iterator[None]:
    """Convert errors of the store's library into DatabaseError, except those that callers handle."""
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except (BaseError, UnlistableError, ValueError, OSError) as error:
        text = str(error).strip()
        hints = [f"\nhint: {hint}" for words, hint in _ADVICE if any(word in text for word in words)]
        raise DatabaseError(f"{address}: {text.partition(chr(10))[0][:300]}{''.join(hints[:1])}") from error
