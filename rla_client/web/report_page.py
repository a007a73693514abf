"""The HTML file of a report.

The file contains the page itself (`bundle`), the compressed answers that it would request from a server
(runs, columns, curves, pictures), and a policy that permits only this script, by its hash. What a run wrote
is in the data only.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from rla_client.web import STATIC
from rla_client.web.bundle import bundle

# what the page loads from its server
_LOADED = re.compile(r'<link [^>]*>\n|<script type="module"[^>]*></script>\n')


def report_page(data: Mapping[str, Any], view: Mapping[str, Sequence[str]], refresh_s: float | None) -> bytes:
    """The page's HTML with script, style and data inside."""
    script = bundle()
    style = "".join((STATIC / name).read_text() for name in ("vendor/uPlot.min.css", "style.css"))
    packed = gzip.compress(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"), 6, mtime=0)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    again = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s:.0f}">\n'
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{again}<style>{style}</style>\n'
    text = _LOADED.sub("", (STATIC / "index.html").read_text())
    text = text.replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{head}')
    query = html.escape(f"#/runs?{urlencode(view, doseq=True)}")
    text = text.replace("<html lang", f'<html data-view="{query}" lang')
    body = f'<script type="application/json" id="data">{base64.b64encode(packed).decode()}</script>\n'
    return text.replace("</body>", f"{body}<script>{script}</script>\n</body>").encode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
