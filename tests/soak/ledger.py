"""What was asked for, and what became of it: every run one outcome, every attempt one start, every occurrence a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.soak.jobs import EVERY_SECONDS

Run = tuple[str, str]  # job and run id


class Ledger:
    """Filled while the soak runs; `problems` afterwards."""

    def __init__(self) -> None:
        self.expected: dict[Run, frozenset[str]] = {}
        self.ended: dict[Run, list[str]] = defaultdict(list)
        self.events = 0
        self.children = 0

    def expect(self, job: str, run_id: str, *statuses: str) -> None:
        """This run must end in one of these ways."""
        self.expected[job, run_id] = frozenset(statuses or ("SUCCEEDED",))

    def hear(self, subject: str) -> None:
        """A run's end, as `jetjobs.PROJECT.events.STATUS.MODULE.JOB.RUN` tells it."""
        status, _, job, run_id = subject.split(".")[3:]
        self.ended[job, run_id].append(status)

    @property
    def unheard(self) -> list[Run]:
        """Runs that were asked for and whose end nobody has told."""
        return [run for run in self.expected if run not in self.ended]

    def outcomes(self) -> Counter[str]:
        """How many runs ended how."""
        return Counter(status for statuses in self.ended.values() for status in statuses)

    def problems(self, starts: Iterable[str]) -> list[str]:
        """What is wrong, if anything; `starts` are the lines of the jobs' file."""
        return [*self._wrong_ends(), *self._wrong_starts(starts), *self._wrong_counts(), *self._holes()]

    def _wrong_ends(self) -> list[str]:
        wrong = [f"{run} never ended" for run in self.unheard]
        for run, statuses in self.ended.items():
            allowed = self.expected.get(run, frozenset({"SUCCEEDED"}))
            if len(statuses) != 1 or statuses[0] not in allowed:
                wrong.append(f"{run} ended {statuses}, not once in {sorted(allowed)}")
        return wrong

    def _wrong_starts(self, starts: Iterable[str]) -> list[str]:
        seen = Counter(starts)
        wrong = [f"attempt {line!r} started {times} times" for line, times in seen.items() if times > 1]
        started = {(job, run_id) for job, run_id, _ in (line.split() for line in seen)}
        wrong += [f"{run} started and never ended" for run in started - self.ended.keys()]
        never = {run for run, statuses in self.ended.items() if statuses == ["SUCCEEDED"]} - started
        return wrong + [f"{run} succeeded without a start" for run in never]

    def _wrong_counts(self) -> list[str]:
        count = Counter(job for job, _ in self.ended)
        wanted = {"on_event": self.events, "child": self.children}
        return [f"{count[job]} runs of {job}, not {number}" for job, number in wanted.items() if count[job] != number]

    def _holes(self) -> list[str]:
        """Occurrences of the schedules, between the first and the last, that became no run."""
        wrong: list[str] = []
        for job, seconds in EVERY_SECONDS.items():
            at = sorted(int(run_id.rpartition("-")[2]) // 1000 for name, run_id in self.ended if name == job)
            if not at:
                wrong.append(f"{job} never ran")
                continue
            missing = sorted(set(range(at[0], at[-1] + 1, seconds)) ^ set(at))
            wrong += [f"{job}'s occurrence of second {second} is missing or one too many" for second in missing]
        return wrong
