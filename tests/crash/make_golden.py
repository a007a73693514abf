"""Writes data/segment-vN.seg, messages-vN.json and what must come of it: only for a new version."""

from __future__ import annotations

import json
from pathlib import Path

from rla_client.contract.spool.protocol import (
    PROTOCOL_VERSION,
    FrameKind,
    MessageKind,
    decode_message,
    encode_frame,
    encode_message,
    pack,
)

DATA = Path(__file__).with_name("data")
OPENING = {
    "run": "0123456789abcdef0123456789abcdef", "epoch": 1, "opened": 1763717401.5, "root": "/data",
    "root_device": 1, "root_inode": 2, "folders": {"log": "log/table/index"}, "names": {},
    "sinks": ["csv", "json", "log", "tensorboard"], "offline": False, "config": None, "table": "table",
    "index": "index", "primary": True, "label": "", "pid": 7, "host": "host", "user": "user",
    "python": "/usr/bin/python3", "client": "0.1.0", "segment": 1, "rows": 0, "lost": 0,
}  # fmt: skip
FRAMES: list[tuple[int, object]] = [
    (FrameKind.OPEN, OPENING),
    (FrameKind.TEXT, [1, "first line\n"]),
    (FrameKind.ROW, [0, 1763717402.25, {"b": 1, "a": 2.5, "note": 'x, "y"\nz', "flag": True}]),
    (FrameKind.ROW, [1, 1763717403.25, {"b": 2, "a": float("inf"), "late": 3}, {"late": ["csv"]}]),
    (FrameKind.ROW, [2.5, 1763717404.25, {"a": 1e400, "big": 1 << 70}]),
    (FrameKind.TEXT, [6, "[WARN] 2 : warned\n"]),
    (FrameKind.EVENT, [b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x05"]),
    (FrameKind.FILE, ["log", "parameter.json", b"{}"]),
    (FrameKind.MARK, ["hyper_param", {"lr": 0.001, "layers": [64, 64]}]),
    (FrameKind.JOB, ["figure", {"name": "curve", "blob": "1"}]),
    (FrameKind.CLOSE, ["finished", "", 1763717405.0]),
]


def messages() -> list[tuple[int, dict[str, object]]]:
    """One message of each kind: kind, header."""
    return [
        (MessageKind.HINT, {"s": "stream", "n": 1, "o": 745}),
        (MessageKind.FLUSH, {"s": "stream", "n": 1, "o": 745, "m": True}),
        (MessageKind.FLUSHED, {"s": "stream", "done": True}),
        (MessageKind.STATUS, {}),
        (MessageKind.STATUS, {"item": "table/2026/11/21/name", "root": "/data"}),
        (MessageKind.REPLY, {"replicated": None}),
    ]


def write_messages() -> None:
    """Write messages-vN.json."""
    path = DATA / f"messages-v{PROTOCOL_VERSION}.json"
    assert not path.exists(), "formats are never changed in place"
    golden = []
    for message in messages():
        kind, header = decode_message(data := encode_message(*message))
        golden.append({"bytes": data.hex(), "kind": kind, "header": header})
    path.write_text(json.dumps(golden, indent=1) + "\n")


def main() -> None:
    """Write the files."""
    write_messages()
    from crash.golden import decoded, outputs_of

    data = b"".join(encode_frame(kind, pack(content)) for kind, content in FRAMES)
    path = DATA / f"segment-v{PROTOCOL_VERSION}.seg"
    assert not path.exists(), "formats are never changed in place"
    path.write_bytes(data)
    path.with_suffix(".json").write_text(json.dumps(decoded(data), indent=1) + "\n")
    for name, content in outputs_of(data).items():
        path.with_name(f"{path.stem}.{name}").write_bytes(content)


if __name__ == "__main__":
    main()
