"""Names that nobody should have given, and a picture of everything that they must not touch.

`Sandbox` is a deep folder: a data root far down, so that every `../..` of a name still ends in the test's
own folder, and absolute names point into it. What a name makes outside of the allowed places is found by
comparing pictures of the sandbox; names that reach further carry MARK, which nothing else on this machine
does, and are looked for where they could have gone.
"""

# ruff: noqa: E501, RUF001
from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from crash.mutations import packed

from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, encode_frame
from rla_client.contract.spool.segments import new_stream_name
from rla_client.stream.segment_writer import SegmentWriter

MARK = "rlaXhostile"
MOST_NAMES = 640
FOLDERS = ("log", "checkpoint", "results", "code")
DEEP = ("a", "b", "c", "d", "e", "f", "g", "h")
FAR = ("/", "/etc", "/tmp", "/dev/shm", "/var", "/root")
PLAIN = (
    "", ".", "..", "/", "//", "-", "-rf", "--", "--help", "-rf /", "~", "~root", "$HOME", "$(id)", "`id`", "%s%n", "{}",
    "*", "?", "[a-z]", "|id", ";id", "&", "a&b=c", "=cmd", "=1+1", "@SUM(A1)", "+1", "'", '"', "a,b", "a;b", "#", "\\", "a\\b",
    "..\\..\\x", "C:\\x", "con", "nul", "aux.txt", "s3:x", "http://x/y", "file:///etc/passwd", "a:b", "log", "code", "results",
    "checkpoint", "tb", "csv", "run.json", "progress.csv", "progress.json", "log.txt", ".objects", ".rla-tmp-x", ".hidden",
    "agent.db", "lock", "seq", "time-step", "timestamp", "__proto__", "__class__", "None", "NaN", "inf", "true", "0", "1e400",
    " ", "  x  ", "x ", " x", "a b", "x.", "x..", "...", "a\tb", "\n", "a\nb", "\r", "a\r\nb", "\0", "a\0b", "\x1b[2J", "\x7f",
    "\x01", "\u0085", "\u2028", "\u202e", "abc\u202egpj.exe", "\u200b", "\ufeff", "\ufffe", "é", "e\u0301", "ﬀ", "İ", "ß",
    "日本語", "עברית", "العربية", "👩‍👩‍👧", "𝒳", "Ａ", "\ud800", "\udcff", "a\udc80b", "\ud83d",
    "x" * 200, "x" * 255, "x" * 256, "x" * 4096, "é" * 128, "/".join(["x"] * 200), "a" * 100 + "/" + "b" * 300,
    "Case", "case", "CASE", "cASE", "Straße", "STRASSE", "strasse",
)  # fmt: skip


def hostile_names(outside: Path) -> list[str]:
    """At least 500 different names, the plainest first; absolute ones point to `outside`."""
    made = [*PLAIN]
    for depth in range(1, 12):
        made += [f"{'../' * depth}{MARK}-{depth}", f"ok/{'../' * depth}{MARK}-under-{depth}"]
    made += [
        f"{outside}/{MARK}-absolute",
        f"/{MARK}-top",
        f"//{MARK}",
        f"/tmp/{MARK}",
        f"{outside}/../{MARK}",
    ]
    made += [f"./{MARK}", f"a/./{MARK}", f"a//{MARK}", f"a/../{MARK}", f"{MARK}/", f"{MARK}/.", f"{MARK}/.."]
    for shape in ("{}/x", "x/{}", "{}.png", ".{}", "-{}", "x{}y", "{}\n", "../{}", "{}/../../x"):
        made += [shape.format(name) for name in PLAIN if len(name) < 100]
    return list(dict.fromkeys(made))[:MOST_NAMES]


def some(names: list[str], count: int, seed: int = 5) -> list[str]:
    """`count` of them, of all kinds."""
    return names if len(names) <= count else random.Random(seed).sample(names, count)


class Sandbox:
    """Folders of one test; `outside` and all that is not in `allowed` must stay as it is."""

    def __init__(self, folder: Path, *allowed: Path) -> None:
        self.folder = folder
        self.outside = folder / "outside"
        self.root = folder.joinpath("deep", *DEEP, "data")
        self.root.mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(b"a secret that nobody may copy")
        (self.outside / "folder").mkdir()
        self._allowed = {os.fspath(one) for one in (self.root, *allowed)}
        self._before = self._picture()

    def escaped(self) -> list[str]:
        """What is there that was not, or is gone, or changed, outside of the allowed places."""
        now = self._picture()
        far = [
            os.path.join(place, name)
            for place in FAR
            if os.path.isdir(place)
            for name in os.listdir(place)
            if MARK in name
        ]
        changed = {
            path for path in now.keys() | self._before.keys() if now.get(path) != self._before.get(path)
        }
        return sorted([*changed, *far])

    def _picture(self) -> dict[str, tuple[int, bytes]]:
        found: dict[str, tuple[int, bytes]] = {}
        for place, folders, files in os.walk(self.folder):
            folders[:] = [name for name in folders if os.path.join(place, name) not in self._allowed]
            for name in (*folders, *files):
                path = os.path.join(place, name)
                if path in self._allowed:
                    continue
                what = os.lstat(path)
                plain = os.path.isfile(path) and not os.path.islink(path)
                found[path] = (what.st_mode, Path(path).read_bytes() if plain else b"")
        return found


def opening(root: Path, /, **changed: Any) -> dict[str, Any]:
    found = os.stat(root)
    return {
        "run": new_stream_name(), "epoch": 1, "opened": time.time(), "root": str(root), "root_device": found.st_dev,
        "root_inode": found.st_ino, "folders": {kind: f"{kind}/item" for kind in FOLDERS}, "names": {},
        "sinks": ["csv", "json", "log", "tensorboard"], "table": "t", "index": "i", "primary": True, "label": "",
        "pid": os.getpid(), "host": "h", "user": "u", "python": sys.executable, "client": "0", "config": None, "offline": False,
        **changed,
    }  # fmt: skip


def write_frames(places: Places, fields: dict[str, Any], frames: list[bytes]) -> None:
    """One closed stream."""
    writer = SegmentWriter(
        places.spool,
        lambda number, rows: encode_frame(
            FrameKind.OPEN, packed({**fields, "segment": number, "rows": rows, "lost": 0})
        ),
    )
    for frame in frames:
        writer.append(frame, 0)
    writer.close()


def frames_with(name: str) -> list[bytes]:
    """Every frame that carries a name, with this one."""
    image = {"format": "png", "cover": True, "blob": name, "shape": [1, 4, 4, 3], "dtype": "uint8"}
    jobs: list[list[Any]] = [
        ["image", {"name": name, **image}],
        ["figure", {"name": name, "format": "png", "cover": True, "blob": "b"}],
        ["video", {"name": name, **image, "format": "gif", "fps": 1.0}],
        ["code", {"blob": name}],
        [
            "snapshot",
            {
                "v": 1,
                "token": "0" * 16,
                "order": 1,
                "kind": "checkpoint",
                "names": [name],
                "blob": name,
                "size": 1,
            },
        ],
        ["checkpoint", {"name": name, "number": 3, "shm": name, "blob": name, "final_name": name, "keep": 5}],
        [name, {}],
    ]
    return [
        *(encode_frame(FrameKind.FILE, packed([kind, name, b"content"])) for kind in (*FOLDERS, name)),
        *(encode_frame(FrameKind.JOB, packed(job)) for job in jobs),
        encode_frame(FrameKind.MARK, packed([name, {}])),
        encode_frame(FrameKind.ROW, packed([1, 1.5, {name: 1.0, "note": name}])),
        encode_frame(FrameKind.TEXT, packed([3, name])),
    ]
