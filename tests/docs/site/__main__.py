"""`python -m tests.docs.site FOLDER`: write the site there."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.site.build import build

target = Path(sys.argv[1])
sys.stdout.write(f"{len(build(target))} pages: {(target / 'index.html').absolute().as_uri()}\n")
