"""Write plan of a sharded save.

Each rank describes the pieces that it could write (`LocalPlan`) to rank 0, which makes the `SharedPlan`: a
piece that several ranks hold is written by the one that has the least to write so far, and one of changing
length (a pickled object) by the lowest. Of it each rank learns its own share. No I/O, no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.job.arena_layout import ALIGNMENT
from rla_client.contract.sharded_checkpoint.files import shard_name

HASH_CHARS: Final = 32
PathPart = str | int
Kind = Literal["tensor", "shard", "bytes"]


class PieceKey(NamedTuple):
    """Identity of a piece in the state, the same on all ranks that have it."""

    key: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShardPiece:
    """A part of the state that one rank can write.

    Attributes:
        key: name in the flat state.
        kind: a whole tensor, a part of one, or a pickled object.
        offsets: of its first element in the whole tensor.
        sizes: shape of this part.
        shape: of the whole tensor.
        dtype: name in torch, `float32`.
        length: bytes in the file; 0 of `bytes`, whose length each save notes.
    """

    key: str
    kind: Kind
    offsets: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    length: int = 0

    @property
    def identity(self) -> PieceKey:
        """Its identity among other pieces."""
        return PieceKey(self.key, self.offsets)


@dataclass(frozen=True)
class LocalPlan:
    """Pieces that one rank could write.

    Attributes:
        pieces: in the order of the state.
        paths: key in the flat state → keys in the nested one.
    """

    pieces: tuple[ShardPiece, ...]
    paths: Mapping[str, tuple[PathPart, ...]]

    @cached_property
    def encoded(self) -> bytes:
        """JSON for the other ranks."""
        rows = [[p.key, p.kind, p.offsets, p.sizes, p.shape, p.dtype, p.length] for p in self.pieces]
        paths = {key: list(path) for key, path in self.paths.items()}
        return json.dumps({"pieces": rows, "paths": paths}, separators=(",", ":")).encode("ascii")

    @cached_property
    def layout(self) -> str:
        """Hash of it."""
        return hashlib.sha256(self.encoded).hexdigest()[:HASH_CHARS]

    @classmethod
    def decode(cls, data: bytes, layout: str) -> LocalPlan:
        """Parse another rank's plan.

        Raises:
            RemoteProtocolError: it is not the one of that hash, or no plan at all.
        """
        if hashlib.sha256(data).hexdigest()[:HASH_CHARS] != layout:
            raise RemoteProtocolError("a plan is not the one of its name")
        try:
            fields = json.loads(data)
            pieces = tuple(_piece(row) for row in fields["pieces"])
            paths = {str(key): tuple(path) for key, path in fields["paths"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RemoteProtocolError(f"not a plan: {error}") from error
        return cls(pieces, paths)


def _piece(row: Sequence[Any]) -> ShardPiece:
    key, kind, offsets, sizes, shape, dtype, length = row
    return ShardPiece(str(key), kind, tuple(offsets), tuple(sizes), tuple(shape), str(dtype), int(length))


class Placed(NamedTuple):
    """A piece in the file of the rank that writes it: first byte, and number of bytes."""

    piece: ShardPiece
    file: str
    offset: int
    length: int


class SharedPlan:
    """Who writes what.

    Args:
        plans: of each rank, by rank.

    Attributes:
        layout: hash of all of them.
        pieces: by rank, those that it writes.
        problem: why it makes no checkpoint; empty where it does.
    """

    def __init__(self, plans: Sequence[LocalPlan]) -> None:
        joined = "".join(plan.layout for plan in plans)
        self.layout = hashlib.sha256(joined.encode()).hexdigest()[:HASH_CHARS]
        taken = _assigned(plans)
        self.pieces = [[plan.pieces[at] for at in own] for plan, own in zip(plans, taken, strict=True)]
        self._runs = [_runs(own) for own in taken]
        self.paths = {key: path for plan in reversed(plans) for key, path in plan.paths.items()}
        self.problem = _problem(self.pieces)

    @cached_property
    def shares(self) -> bytes:
        """JSON for `share_of`: of each rank the runs of its own pieces, in the order of its file."""
        return json.dumps(self._runs, separators=(",", ":")).encode("ascii")


def share_of(plan: LocalPlan, rank: int, shares: bytes) -> list[ShardPiece]:
    """The pieces that a rank writes, of those that it could.

    Args:
        plan: the rank's own.
        rank: whose.
        shares: see `SharedPlan.shares`.

    Raises:
        RemoteProtocolError: these are no shares of such a plan.
    """
    try:
        ranges = [range(first, first + count) for first, count in json.loads(shares)[rank]]
        if any(run.start < 0 for run in ranges):
            raise RemoteProtocolError("a share begins before the plan")
        return [plan.pieces[at] for run in ranges for at in run]
    except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
        raise RemoteProtocolError(f"not the shares of these ranks: {error}") from error


def placed(pieces: Sequence[ShardPiece], rank: int, lengths: Mapping[str, int]) -> list[Placed]:
    """Where a rank's pieces lie in its file.

    Args:
        pieces: those that it writes.
        rank: whose.
        lengths: key → bytes of its pickled objects in this save.

    Raises:
        KeyError: one of them is missing there.
    """
    at, found = 0, []
    for piece in pieces:
        length = lengths[piece.key] if piece.kind == "bytes" else piece.length
        found.append(Placed(piece, shard_name(rank), at, length))
        at += length + -length % ALIGNMENT
    return found


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """First number and count of what follows each other."""
    found: list[list[int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def _assigned(plans: Sequence[LocalPlan]) -> list[list[int]]:
    """Of each rank the places in its plan of what it writes."""
    holders: dict[PieceKey, list[int]] = {}
    for rank, plan in enumerate(plans):
        for piece in plan.pieces:
            holders.setdefault(piece.identity, []).append(rank)
    load = [0] * len(plans)
    taken: list[list[int]] = [[] for _ in plans]
    places = [{piece.identity: at for at, piece in enumerate(plan.pieces)} for plan in plans]
    for identity, ranks in sorted(holders.items(), key=lambda one: len(one[1]) > 1):  # no choice: first
        piece = plans[ranks[0]].pieces[places[ranks[0]][identity]]
        rank = ranks[0] if piece.kind == "bytes" else min(ranks, key=lambda one: load[one])
        load[rank] += piece.length
        taken[rank].append(places[rank][identity])
    for plan, own in zip(plans, taken, strict=True):
        own.sort(key=lambda at: plan.pieces[at].kind == "bytes")  # what differs in length comes last
    return taken


def _problem(pieces: Sequence[Sequence[ShardPiece]]) -> str:
    """Why the pieces do not form a complete state."""
    kinds: dict[str, tuple[bool, tuple[int, ...], str]] = {}
    volumes: dict[str, int] = {}
    for piece in (one for rank in pieces for one in rank):
        told = piece.kind == "bytes", piece.shape, piece.dtype
        if kinds.setdefault(piece.key, told) != told:
            return f"{piece.key} has another type or shape on some rank"
        volumes[piece.key] = volumes.get(piece.key, 0) + math.prod(piece.sizes)
    for key, (is_bytes, shape, _) in kinds.items():
        if not is_bytes and volumes[key] != math.prod(shape):
            return f"the ranks hold {volumes[key]} of the {math.prod(shape)} elements of {key}"
    return ""
