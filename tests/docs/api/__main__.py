"""`python -m tests.docs.api`: write the reference of the public names anew."""

from __future__ import annotations

from tests.docs.api.written import FOLDER, texts

for stale in FOLDER.glob("*.md"):
    if stale.name not in texts():
        stale.unlink()
FOLDER.mkdir(parents=True, exist_ok=True)
for name, text in texts().items():
    (FOLDER / name).write_text(text, encoding="utf-8")
