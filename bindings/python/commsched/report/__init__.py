"""What a training script's communication cost, and what to do about it."""

from __future__ import annotations

from .session import Report, report

__all__ = ["Report", "report"]
