"""Recorder of images."""

from __future__ import annotations

import os

from rla_client.contract.job.media_job import (
    FORMATS,
    JOB_IMAGE,
)
from rla_client.media.job_sender import record_pixels
from rla_client.media.recording_place import find_place


class ImgRecorder:
    """Saves images, with RLA's name and signature."""

    @classmethod
    def save(
        cls,
        name: str,
        img: object,
        cover: bool = False,
        add_timestamp: bool = True,
        results_dir: str | os.PathLike[str] | None = None,
        caption: str | None = None,
        **_unused: object,
    ) -> str:
        """Save an image, shape (H, W), (H, W, C) or (C, H, W) with C of 1, 3 (RGB) or 4 (RGBA).

        Args:
            name: below the results folder, png without a known extension.
            img: numpy array, torch tensor or PIL image. Floats are in 0…1 if none is larger than 1, else in
                0…255; other numbers are clipped to 0…255.
            cover: replace a file with an explicit extension.
            add_timestamp: put the time-step before the name.
            results_dir: another folder; outside of the run's results, the caller encodes.
            caption: stored in a PNG as its text `Description`.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: the name or the image is invalid.
            NotConfiguredError: no run is open and no results_dir is given.
        """
        from rla_client.media.pixels import image_pixels  # noqa: PLC0415 - imports numpy

        place = find_place(
            name, FORMATS[JOB_IMAGE], cover=cover, add_timestamp=add_timestamp, results_dir=results_dir
        )
        if place.unmade:
            return str(place.path)
        pixels = image_pixels(img)
        if not place.stays:
            record_pixels(place, JOB_IMAGE, pixels, 1.0, caption or "")
        return str(place.path)
