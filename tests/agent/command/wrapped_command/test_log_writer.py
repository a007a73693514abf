"""Output that waits for a disk is bounded."""

from __future__ import annotations

from rla_agent.command.wrapped_command.log_writer import WAITING_BYTES, _Waiting


def test_what_a_disk_does_not_take_in_time_is_left_out_and_counted() -> None:
    waiting = _Waiting()
    piece = b"x" * (1 << 20)
    for number in range(12):
        waiting.put(b"o", b"%02d" % number + piece)
    waiting.put(b"p", b"a place")
    kept = WAITING_BYTES // len(b"00" + piece)
    left_out = (12 - kept) * len(b"00" + piece)
    note = f"\n[... {left_out} bytes left out: the disk was too slow ...]\n"
    assert waiting.take() == (b"o", note.encode())
    assert [waiting.take()[1][:2] for _ in range(kept)] == [
        b"%02d" % number for number in range(12 - kept, 12)
    ]
    assert waiting.take() == (b"p", b"a place")
