"""JSON records of a sharded checkpoint.

These are plans, receipts, `whole.json` and fences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, get_args

from rla_client.contract.checkpoint.checkpoint_retention import Mode, Retention
from rla_client.contract.checkpoint.stamp import Stamp
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.job.job_fields import (
    count_field,
    int64_field,
    positive_field,
    text_field,
    token_field,
)
from rla_client.contract.sharded_checkpoint.files import MAX_WORLD, rank_file_name

FORMAT: Final = 1
MAX_FILES: Final = 64  # of one rank in one save
MAX_RECEIPT_BYTES: Final = 1 << 20
MAX_NOTE_BYTES: Final = 256 << 20  # the lengths of all pickled objects
MAX_WHOLE_BYTES: Final = 256 << 20  # a kilobyte for each of a quarter of a million files
_LAYOUT = re.compile(r"[0-9a-f]{32}")
_SHARD = re.compile(r"__(0|[1-9][0-9]{0,6})_[0-9]{1,6}\.distcp")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A durable file of a checkpoint: size in bytes, SHA-256 in hex."""

    file: str
    size: int
    sha256: str

    @classmethod
    def from_fields(cls, fields: object) -> KeptFile:
        """Check what was read.

        Raises:
            RemoteProtocolError: these are not the fields of the dataclass.
        """
        if not isinstance(fields, dict):
            raise RemoteProtocolError("a file is not a map")
        sha256 = text_field(fields.get("sha256"), "sha256")
        if _SHA256.fullmatch(sha256) is None:
            raise RemoteProtocolError("sha256 is not 64 hex digits")
        return cls(text_field(fields.get("file"), "file"), count_field(fields.get("size"), "size"), sha256)


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Identity of a save, the same in all its receipts.

    Attributes:
        run: identity of the run.
        epoch: of its opening, nanoseconds.
        token: `save_token`.
        name: of the series.
        step: time-step.
        world: number of ranks.
        layout: hash of the write plan, the same on all ranks that planned alike.
    """

    run: str
    epoch: int
    token: str
    name: str
    step: int
    world: int
    layout: str

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> SaveIdentity:
        """Check what was read.

        Raises:
            RemoteProtocolError: something is missing, or not what a client writes.
        """
        found = cls(
            run=text_field(fields.get("run"), "run"),
            epoch=count_field(fields.get("epoch"), "epoch"),
            token=token_field(fields.get("token")),
            name=text_field(fields.get("name"), "name"),
            step=int64_field(fields.get("step"), "step"),
            world=positive_field(fields.get("world"), "world"),
            layout=text_field(fields.get("layout"), "layout"),
        )
        if found.world > MAX_WORLD:
            raise RemoteProtocolError(f"world is over {MAX_WORLD}")
        return found


@dataclass(frozen=True, slots=True)
class PlanNote:
    """A rank's note of its possible part in one save.

    Attributes:
        token: of the save.
        rank: whose.
        world: number of ranks.
        number: of its calls up to this one: a rank with a higher one elsewhere will not join this save.
        layout: hash of the pieces' description, which is in `layout_file`.
        host: of the rank.
        lengths: key → bytes of the pickled objects that it has.
    """

    token: str
    rank: int
    world: int
    number: int
    layout: str
    host: str
    lengths: Mapping[str, int]

    def encode(self) -> bytes:
        """JSON."""
        return _json({"format": FORMAT, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> PlanNote:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no plan note.
        """
        fields = _fields(data)
        lengths, layout = fields.get("lengths"), text_field(fields.get("layout"), "layout")
        if not isinstance(lengths, dict) or _LAYOUT.fullmatch(layout) is None:
            raise RemoteProtocolError("a plan note has no layout or no lengths")
        return cls(
            token=token_field(fields.get("token")),
            rank=count_field(fields.get("rank"), "rank"),
            world=positive_field(fields.get("world"), "world"),
            number=count_field(fields.get("number"), "number"),
            layout=layout,
            host=text_field(fields.get("host"), "host"),
            lengths={str(key): count_field(count, "length") for key, count in lengths.items()},
        )


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """Rank 0's answer to the notes of all ranks to one save.

    Attributes:
        token: of the save.
        layout: hash of who writes what; empty where not all ranks have come to the save.
        problem: why it stays incomplete; empty where it need not.
        order: of the receipts, nanoseconds; and so are `metrics`.
        keep: which checkpoints stay once this one is whole.
    """

    token: str
    layout: str
    problem: str = ""
    order: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    keep: Retention = Retention()  # noqa: RUF009 - frozen

    def encode(self) -> bytes:
        """JSON."""
        return _json({"format": FORMAT, **asdict(self), "metrics": _told_metrics(self.metrics)})

    @classmethod
    def decode(cls, data: bytes) -> PlanDecision:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no decision.
        """
        fields = _fields(data)
        layout = text_field(fields.get("layout"), "layout")
        if layout and _LAYOUT.fullmatch(layout) is None:
            raise RemoteProtocolError("a decision names no layout")
        return cls(
            token=token_field(fields.get("token")),
            layout=layout,
            problem=text_field(fields.get("problem"), "problem"),
            order=int64_field(fields.get("order"), "order"),
            metrics=_metrics(fields.get("metrics")),
            keep=_retention(fields.get("keep")),
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """A rank's receipt for its durable files of a save.

    Attributes:
        save: which.
        rank: whose.
        host: where it was written.
        order: nanoseconds since 1970 at the call, never twice the same in a run; that of rank 0 counts.
        files: shards and the rank's own file.
        metadata: of rank 0: the final `.metadata`; None of the others.
        metrics: of rank 0: values that retention compares.
        beside: ranks whose parts come into the same folder (this one included), in a save over several data
            roots; there all receipts have rank 0's order and metrics. Empty: all ranks.
        keep: rank 0's rules at this save over several data roots, since it may become whole after the ranks
            have ended. None: unknown.
    """

    save: SaveIdentity
    rank: int
    host: str
    order: int
    files: tuple[KeptFile, ...]
    metadata: KeptFile | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    beside: tuple[int, ...] = ()
    keep: Retention | None = None

    @property
    def stamp(self) -> Stamp:
        """Of the checkpoint, in a save that lies in several data roots."""
        save = self.save
        return Stamp(save.token, self.order, save.run, save.name, save.step, self.metrics)

    def encode(self) -> bytes:
        """JSON, as it lies in the checkpoint."""
        return _encoded(self)

    @classmethod
    def decode(cls, data: bytes) -> Receipt:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no receipt.
        """
        fields = _fields(data)
        save = SaveIdentity.from_fields(fields)
        rank = count_field(fields.get("rank"), "rank")
        if rank >= save.world:
            raise RemoteProtocolError("rank is not below world")
        files = fields.get("files")
        if not isinstance(files, list) or len(files) > MAX_FILES:
            raise RemoteProtocolError("files is not a short list")
        kept = tuple(KeptFile.from_fields(entry) for entry in files)
        for entry in kept:
            _check_owner(entry.file, rank)
        metadata = fields.get("metadata")
        beside = _ranks(fields.get("beside", []), save.world)
        if beside and rank not in beside:
            raise RemoteProtocolError("a rank is not beside itself")
        return cls(
            save=save,
            rank=rank,
            host=text_field(fields.get("host"), "host"),
            order=int64_field(fields.get("order"), "order"),
            files=kept,
            metadata=None if metadata is None else KeptFile.from_fields(metadata),
            metrics=_metrics(fields.get("metrics")),
            beside=beside,
            keep=None if fields.get("keep") is None else _retention(fields["keep"]),
        )


@dataclass(frozen=True, slots=True)
class MachinePart:
    """`part.json`: all ranks of a machine have written, those of other machines into other data roots.

    Attributes:
        save: which.
        ranks: of this machine, sorted.
    """

    save: SaveIdentity
    ranks: tuple[int, ...]

    def encode(self) -> bytes:
        """JSON."""
        return _json({"format": FORMAT, **asdict(self.save), "ranks": self.ranks})

    @classmethod
    def decode(cls, data: bytes) -> MachinePart:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no `part.json`.
        """
        fields = _fields(data)
        save = SaveIdentity.from_fields(fields)
        return cls(save, _ranks(fields.get("ranks"), save.world))


@dataclass(frozen=True, slots=True)
class Whole:
    """`whole.json`, the record of a complete checkpoint.

    Attributes:
        save: which.
        order: of rank 0's receipt: the later of two saves of a run has the higher.
        files: all shards and ranks' own files, by name.
        metadata: `.metadata`.
        metrics: values that retention compares.
    """

    save: SaveIdentity
    order: int
    files: tuple[KeptFile, ...]
    metadata: KeptFile
    metrics: Mapping[str, float]

    @property
    def stamp(self) -> Stamp:
        """As that of a checkpoint file."""
        save = self.save
        return Stamp(save.token, self.order, save.run, save.name, save.step, self.metrics)

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return sum(entry.size for entry in self.files)

    def encode(self) -> bytes:
        """JSON: the same bytes whoever publishes."""
        return _encoded(self)

    @classmethod
    def decode(cls, data: bytes) -> Whole:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no `whole.json`.
        """
        fields = _fields(data)
        files = fields.get("files")
        if not isinstance(files, list):
            raise RemoteProtocolError("files is not a list")
        kept = tuple(KeptFile.from_fields(entry) for entry in files)
        for entry in kept:
            _check_owner(entry.file, None)
        return cls(
            SaveIdentity.from_fields(fields),
            int64_field(fields.get("order"), "order"),
            kept,
            KeptFile.from_fields(fields.get("metadata")),
            _metrics(fields.get("metrics")),
        )


@dataclass(frozen=True, slots=True)
class Fence:
    """The run, and its opening, whose saves may be published in a folder."""

    run: str
    epoch: int

    def encode(self) -> bytes:
        """JSON."""
        return _json({"format": FORMAT, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Fence:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no fence.
        """
        fields = _fields(data)
        return cls(text_field(fields.get("run"), "run"), count_field(fields.get("epoch"), "epoch"))

    def keeps_out(self, save: SaveIdentity) -> bool:
        """Whether a save is of another run, or of an earlier opening."""
        return save.run != self.run or save.epoch < self.epoch


def _check_owner(file: str, rank: int | None) -> None:
    """Refuse a file name that is not a rank's (or not this one's): it may lead out of the folder.

    Raises:
        RemoteProtocolError: it is one.
    """
    match = _SHARD.fullmatch(file)
    whose = int(match[1]) if match is not None else None
    if whose is None and file.startswith("rank-") and file.endswith(".pt"):
        number = file.removeprefix("rank-").removesuffix(".pt")
        whose = int(number) if number.isdecimal() and rank_file_name(int(number)) == file else None
    if whose is None or rank not in {None, whose}:
        raise RemoteProtocolError(f"{file!r} is not a file of this rank")


def _encoded(of: Receipt | Whole) -> bytes:
    """JSON of one of the two: the fields of its save beside its own."""
    own = {**asdict(of), "metrics": _told_metrics(of.metrics)}
    del own["save"]
    return _json({"format": FORMAT, **asdict(of.save), **own})


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise RemoteProtocolError(f"not a map of format {FORMAT}")
    return fields


def _metrics(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        raise RemoteProtocolError("metrics is not a map")
    try:
        return {str(key): float(number) for key, number in value.items()}
    except (TypeError, ValueError) as error:
        raise RemoteProtocolError(f"metrics are not numbers: {error}") from error


def _told_metrics(metrics: Mapping[str, float]) -> dict[str, str]:
    """As texts, which JSON has for infinity, too."""
    return {key: repr(value) for key, value in metrics.items()}


def _ranks(value: object, world: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > world:
        raise RemoteProtocolError("ranks are not a list of this job's")
    found = tuple(count_field(rank, "rank") for rank in value)
    if sorted(set(found)) != list(found) or (found and found[-1] >= world):
        raise RemoteProtocolError("ranks are not sorted, or not of this job")
    return found


def _retention(value: object) -> Retention:
    if not isinstance(value, dict):
        raise RemoteProtocolError("keep is not a map")
    count, every, best = value.get("max_to_keep"), value.get("keep_every"), value.get("keep_best")
    if best is not None:
        if not isinstance(best, list) or len(best) != 3 or best[1] not in get_args(Mode):  # noqa: PLR2004 - its fields
            raise RemoteProtocolError("keep_best is not a metric, a mode and a number")
        best = text_field(best[0], "metric"), best[1], count_field(best[2], "keep_best")
    return Retention(
        None if count is None else positive_field(count, "max_to_keep"),
        None if every is None else positive_field(every, "keep_every"),
        best,
    )
