"""Writes a report's files."""

from __future__ import annotations

import json as json_module
import pathlib
from typing import List, Optional

from .document import Document
from .html import write_html
from .kineto import write_traces


def write(
    document: Document,
    json: Optional[str] = None,
    html: Optional[str] = None,
    trace: Optional[str] = None,
) -> List[str]:
    """Writes what was asked for; returns the paths."""
    written = []
    if json:
        text = json_module.dumps(document.to_json(), indent=1)
        pathlib.Path(json).write_text(text + "\n", encoding="utf-8")
        written.append(json)
    if html:
        page = write_html(document)
        pathlib.Path(html).write_text(page, encoding="utf-8")
        written.append(html)
    if trace:
        written += write_traces(document.run, pathlib.Path(trace))
    return written
