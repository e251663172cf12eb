"""Time zones of a test's own, whose clocks change when the test wants it: the broker and Python both read them."""

from __future__ import annotations

import shutil
import subprocess
import zoneinfo
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jetjobs._core.cron import cron_line
from jetjobs._core.triggers import check_zone

DAY = timedelta(days=1)


@dataclass(frozen=True)
class PrivateZone:
    """A zone with one change of its clocks: from `before` (east of UTC) to `after`, at `change_at`."""

    name: str
    change_at: datetime
    before: timedelta
    after: timedelta

    @property
    def source(self) -> str:
        until = f"{self.change_at.astimezone(UTC):%Y %b %d %H:%M:%S}u"
        return f"Zone {self.name} {_hours(self.before)} - BEF {until}\n\t{_hours(self.after)} - AFT\n"


def zone_changing(
    name: str, change_at: datetime, *, reading: timedelta, shift: timedelta, west: bool = False
) -> PrivateZone:
    """A zone whose clocks show `reading` (since midnight) when they move by `shift`; west or east of Greenwich.

    The second is that of `change_at`, so that offsets are whole minutes as those of real zones are.
    """
    at = change_at.astimezone(UTC).replace(microsecond=0)
    since_midnight = timedelta(hours=at.hour, minutes=at.minute)
    before = (reading - since_midnight) % DAY - (DAY if west else timedelta())
    if abs(before + shift) >= DAY:  # Python's zones end there
        before -= DAY if before > timedelta() else -DAY
    return PrivateZone(name, at, before, before + shift)


@contextmanager
def private_zones(folder: Path, zones: Iterable[PrivateZone]) -> Generator[Path]:
    """Zones that this process knows beside its own; a server started with `ZONEINFO=<the folder given>` too."""
    if shutil.which("zic") is None:
        pytest.skip("zic, the compiler of time zones, is not on this machine")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "zones.txt"
    source.write_text("".join(zone.source for zone in zones))
    subprocess.run(["zic", "-b", "fat", "-d", str(folder), str(source)], check=True)
    kept = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(folder), *kept])
    try:
        for zone in zones:
            check_zone(zone.name)
        yield folder
    finally:
        zoneinfo.reset_tzpath(kept)
        zoneinfo.ZoneInfo.clear_cache()  # the next test may give these names other rules
        cron_line.cache_clear()


def _hours(span: timedelta) -> str:
    seconds = round(abs(span).total_seconds())
    sign = "-" if span < timedelta() else ""
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
