"""The rolled service in release 2."""

from __future__ import annotations

from notes import noted
from rolled import release

module = release("2", noted)
