"""One module with all the jobs of `policies` and `misbehaving`."""

from __future__ import annotations

import misbehaving as misbehaving
import policies as policies
from shared import module as module
