"""Replication status as text for people."""

from __future__ import annotations

import time
from typing import Any

from rla_client.config.schema import BUCKETS
from rla_client.contract.text.terminal_text import printable


def shown_target(name: str) -> str:
    """A target's name for people: one slash before an absolute path, `~/` before another."""
    scheme, colon, rest = name.partition("://")
    if not colon or scheme in BUCKETS:
        return name
    host, _, root = rest.partition("/")
    return f"{scheme}://{host}{root if root.startswith('/') else '/~/' + root}"


def again_text(target: dict[str, Any]) -> str:
    """When a stopped target is retried, with the command that retries at once."""
    return f"tried again in {_duration(target.get('retry_in_s', 0.0))}, or at once: rla-agent replicate retry"


def _duration(seconds: float) -> str:
    """`45 s`, `12 min`, `5 h`."""
    for most, unit, unit_s in ((120, "s", 1), (7200, "min", 60)):
        if seconds < most:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds / 3600:.0f} h"


def headline(status: dict[str, Any]) -> list[str]:
    """A line for each target, for the head of `rla-agent status`; none where nothing is replicated."""
    lines = []
    for target in status["targets"]:
        files = sum(kind["files"] for kind in target["backlog"].values())
        size = sum(kind["bytes"] for kind in target["backlog"].values())
        word = "paused" if status["paused"] else target.get("health", "unknown")
        if not status["running"]:
            word = "not running"
        last = target.get("last_success")
        when = f", last success {time.strftime('%H:%M:%S', time.localtime(last))}" if last else ""
        eta = f", done in about {_duration(target['eta_s'])}" if target.get("eta_s") else ""
        lines.append(
            f"{shown_target(target['target'])}: {word}; {files} file(s), {size_text(size)} waiting{eta}{when}"
        )
    return lines


def as_text(status: dict[str, Any]) -> str:
    """The snapshot as text."""
    word = "paused" if status["paused"] else "on" if status["running"] else "not running"
    if "error" in status:
        lines = [
            f"replication: {word if status['running'] else 'unknown'}",
            f"  {printable(status['error'])}",
        ]
        lines.append("  → see: rla-agent logs")
        shown = {target["data_root"] for target in status["targets"]}
        lines += [
            f"  {printable(root)}: what is sent and what waits is not known"
            for root in dict.fromkeys(status["databases"])
            if root not in shown
        ]
    else:
        lines = [f"replication: {word}"]
    if not status["targets"] and "error" not in status:
        lines += [
            f"  {printable(root)}: nothing was sent yet; what keeps it: rla-agent status"
            for root in dict.fromkeys(status["databases"])
        ] or [
            "  no database is replicated (SEND_LOG_FILE and REMOTE_SETTING in rla_config.yaml switch it on)"
        ]
    for target in status["targets"]:
        lines += _target_lines(target)
    if status["parked_files"]:
        lines.append(f"parked: {status['parked_files']} file(s)")
    if status["parked_folders"]:
        lines.append(f"parked: {status['parked_folders']} folder(s), checked again every minute")
    for parked in status["parked"]:
        fix = [f"    → {parked['fix']}"] if parked["fix"] else []
        lines.extend([f"  {printable(parked['path'])}", f"    {parked['reason']}", *fix])
    lines += [f"not replicated: {text}" for text in status.get("problems", {}).values()]
    lines += [f"kept beside ours on the master: {printable(name)}" for name in status.get("kept", [])]
    lines += [f"lost by the master, and no more here: {printable(name)}" for name in status.get("lost", [])]
    return "\n".join(lines)


def _target_lines(target: dict[str, Any]) -> list[str]:
    name = shown_target(target["target"])
    lines = [f"  {printable(target['data_root'])} → {name}: {target.get('health', 'unknown')}"]
    lines += [
        f"    {'→ ' if name == 'fix' else ''}{target[name]}"
        for name in ("reason", "fix", "problem")
        if target.get(name)
    ]
    if target.get("health") == "blocked":
        lines.append(f"    → {again_text(target)}")
    lines += [
        f"    waiting {kind}: {count['files']} file(s), {size_text(count['bytes'])}"
        for kind, count in sorted(target["backlog"].items())
    ]
    lines += [f"    {printable(what)}" for what in target.get("parts", [])]
    if target.get("unconfirmed"):
        lines.append(
            f"    sent, not yet confirmed to be on the master's disk: {target['unconfirmed']} file(s)"
        )
    if target.get("mended"):
        lines.append(f"    lost or damaged there, and sent again: {target['mended']} file(s)")
    if target.get("last_success"):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(target["last_success"]))
        lines.append(f"    last success {when}; {size_text(int(target.get('rate_bytes_s', 0)))}/s")
    if target.get("eta_s"):
        lines.append(f"    done in about {_duration(target['eta_s'])}")
    return lines


def size_text(count: int) -> str:
    """`3.2 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:  # noqa: PLR2004
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
