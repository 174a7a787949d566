"""Finds the project's own files for the lint tests."""

import os
import pathlib

SKIPPED_FOLDERS = {".git", "build", "__pycache__", ".cache"}


def files(root, *folders, suffixes=None):
    """Paths under `folders` of `root`, relative to it, sorted."""
    found = []
    for folder in folders or (".",):
        for parent, names, leaves in os.walk(root / folder):
            names[:] = [n for n in names if n not in SKIPPED_FOLDERS]
            for leaf in leaves:
                path = pathlib.Path(parent, leaf)
                if suffixes is None or path.suffix in suffixes:
                    found.append(path.relative_to(root))
    return sorted(found)


def read_lines(root, path):
    """Lines of a text file; none if it is not text."""
    try:
        return (root / path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
