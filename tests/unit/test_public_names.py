from __future__ import annotations

import difflib

from tests.support.public_names import SNAPSHOT, public_names


def test_the_public_names_are_as_they_were():
    kept, now = SNAPSHOT.read_text(encoding="utf-8"), public_names()
    changed = "".join(difflib.unified_diff(kept.splitlines(True), now.splitlines(True), "kept", "now", n=0))
    assert not changed, f"{changed}\nIf that is meant: python -m tests.support.public_names, and a line in CHANGELOG.md"
