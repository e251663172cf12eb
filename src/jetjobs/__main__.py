"""`python -m jetjobs` is `jetjobs`."""

from __future__ import annotations

import sys

from jetjobs.cli import main

if __name__ == "__main__":
    sys.exit(main())
