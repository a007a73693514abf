"""The colours of curves, as people with and without colour blindness see them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from rla_client.web import STATIC

Array = NDArray[np.float64]
TOLD_APART = 0.12  # distance in OKLab; the least difference that is seen at all is about 0.02
SEEN = 2.4  # contrast to the ground
GROUNDS = {"LIGHT": "#ffffff", "DARK": "#14171a"}
# linear RGB as seen by a dichromat (Machado, Oliveira and Fernandes 2009, severity 1)
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)


def linear(colour: str) -> Array:
    """RGB of `#rrggbb` as intensities."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def palette(name: str) -> list[str]:
    found = re.search(rf"^const {name} = \[(.*)\];", (STATIC / "colours.js").read_text(), re.MULTILINE)
    assert found is not None
    return re.findall(r"#[0-9a-f]{6}", found[1])


def least_distance(colours: list[str], sight: Array) -> float:
    seen = np.clip(np.array([linear(colour) for colour in colours]) @ sight.T, 0, 1)
    lab = np.cbrt(seen @ TO_CONES.T) @ TO_LAB.T
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    return float(distances[np.triu_indices(len(colours), 1)].min())


@pytest.mark.parametrize("name", GROUNDS)
@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_are_told_apart(name: str, sight: str) -> None:
    colours = palette(name)
    assert len(colours) == 8
    assert least_distance(colours, SIGHTS[sight]) >= TOLD_APART


@pytest.mark.parametrize("name", GROUNDS)
def test_colours_stand_out_from_the_ground(name: str) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    ground = float(linear(GROUNDS[name]) @ weights)
    for colour in palette(name):
        own = float(linear(colour) @ weights)
        assert (max(own, ground) + 0.05) / (min(own, ground) + 0.05) >= SEEN, colour


def test_the_measure_sees_a_bad_palette() -> None:
    assert least_distance(["#d55e00", "#8c6d00"], SIGHTS["protanopia"]) < TOLD_APART
