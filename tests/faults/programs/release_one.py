"""The rolled service in release 1."""

from __future__ import annotations

from notes import noted
from rolled import release

module = release("1", noted)
