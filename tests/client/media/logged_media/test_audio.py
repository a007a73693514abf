"""Sounds: samples of each type become the same file."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.audio import Audio

SINE = np.sin(np.arange(800) / 9)


@pytest.mark.parametrize(
    ("data", "channels"),
    [
        (SINE, 1),
        (SINE.astype(np.float32), 1),
        ((SINE * 32767).astype(np.int16), 1),
        ((SINE * 2147483647).astype(np.int32), 1),
        (((SINE + 1) * 127.5).astype(np.uint8), 1),
        (np.stack([SINE, SINE], axis=1), 2),
        (np.stack([SINE, SINE]), 2),
    ],
    ids=["float64", "float32", "int16", "int32", "uint8", "stereo", "channels first"],
)
def test_samples_become_a_wav(tmp_path: Path, data: np.ndarray, channels: int) -> None:
    Audio(data, 8000).save("s", {"cover": True, "add_timestamp": False, "results_dir": str(tmp_path)})
    with wave.open(str(tmp_path / "s.wav")) as file:
        assert (file.getframerate(), file.getnframes(), file.getnchannels()) == (8000, 800, channels)
        read = np.frombuffer(file.readframes(800), "<i2").reshape(800, channels)[:, 0] / 32767
    assert np.abs(read - SINE).max() < 0.02


@pytest.mark.parametrize("wrong", [np.zeros((2, 3, 4)), np.array(["a"]), np.array([]), np.zeros((20, 20))])
def test_what_is_no_sound_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ArgumentError):
        Audio(wrong).samples()
