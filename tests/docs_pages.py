"""What each page of the documentation assumes of its readers: names, files, placeholders."""

from __future__ import annotations

from docs_lab import Assumed

PAGES: dict[str, Assumed] = {}
