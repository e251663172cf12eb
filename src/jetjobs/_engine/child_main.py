"""What runs in a child process: one handler at a time, on the main thread, told what to do by its host.

A thread beside it hears orders to stop and the host's end. A handler in C code may keep the interpreter's lock, and
then that thread hears nothing: SIGKILL is for that, from the host, or from the kernel when the host is gone.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import connection
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from jetjobs._clock import SystemClock
from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.completion import Ending, Raised
from jetjobs._core.models import LogLine, Progress
from jetjobs._core.texts import cut
from jetjobs._core.wire import unpack_record
from jetjobs._engine.execution import Verdict, describe
from jetjobs._engine.forks import in_child, leave_if_forked, lineage
from jetjobs._engine.frames import Call, read_call, write_ending, write_fields
from jetjobs._engine.isolation import MAIN, Target, mark_child
from jetjobs._engine.linked_runs import Asks, LinkedChildren
from jetjobs._engine.payloads import prepare, refusal
from jetjobs.context import MAX_TEXT, JobContext, Journal
from jetjobs.errors import ConfigError
from jetjobs.module import Module
from jetjobs.outcomes import JobInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetjobs._core.models import RunRecord
    from jetjobs.job import Job

LAST_WORDS = 5.0
AT_ONCE = 1.0
HOST_IS_GONE = 1
_clock = SystemClock()
# So that `if __name__ == "__main__":` of the host's program is not entered; and multiprocessing, which a handler may
# use, knows this name in its own children.
_MAIN_HERE = "__mp_main__"


def main(link: int, lifeline: int) -> None:
    """Serve calls until the host closes the link."""
    _die_with_host(lifeline)
    _leave_to_host("SIGINT", "SIGHUP")
    mark_child()
    Serving(_opened(link)).serve()


def _leave_to_host(*names: str) -> None:
    """Ctrl-C and a closed terminal are the host's to hear: it drains.

    By a function and not SIG_IGN, which the handler's own children would keep; where `nohup` has set that it stays.
    """
    for name in names:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _hear_nothing)


def _hear_nothing(*_: object) -> None:
    pass


def _hear_sigterm() -> None:
    """In what the handler forks: a pool ends its workers by it, and waits."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _opened(link: int) -> Any:
    if sys.platform == "win32":
        return connection.PipeConnection(link)
    os.set_inheritable(link, False)
    return connection.Connection(link)


def _die_with_host(lifeline: int) -> None:
    """Have the kernel kill this process when the host's end of the pipe closes, whatever code runs here then."""
    if sys.platform != "linux":
        return  # the listening thread does it, as soon as the handler lets it run
    import fcntl  # noqa: PLC0415 - only some systems have it

    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


class SpokenJournal(Journal):
    """A journal that tells the host at once: what was said before a crash isn't lost with it."""

    __slots__ = ("_say",)

    def __init__(self, say: Callable[[list[Any]], None]) -> None:
        self._say = say
        super().__init__()

    def add(self, line: LogLine) -> None:
        """Tell a line."""
        self._say(["log", line.at, line.level, line.message, write_fields(line.fields)])

    @property
    def progress(self) -> Progress | None:
        """Nothing is kept here."""
        return None

    @progress.setter
    def progress(self, said: Progress | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if said is not None:
            self._say(["progress", said.done, said.total, said.message])

    @property
    def checkpoint(self) -> Body | None:
        """Nothing is kept here."""
        return None

    @checkpoint.setter
    def checkpoint(self, said: Body | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if said is not None:
            self._say(["checkpoint", said.data])


class ChildContext(JobContext[Any]):
    """The context in a child: its logger's lines come out in the host, and the module's state isn't here."""

    __slots__ = ("_has_state", "_host_logger")

    def __init__(self, record: RunRecord, *, has_state: bool, logger: Any, **rest: Any) -> None:
        self._has_state = has_state
        self._host_logger = logger
        super().__init__(record, state=None, **rest)

    @property
    def logger(self) -> Any:
        """A structlog logger whose lines the host writes."""
        return self._host_logger

    @property
    def state(self) -> None:
        """`None` for a module without a lifespan.

        Raises:
            ConfigError: what the lifespan gave is in the host.
        """
        if self._has_state:
            raise ConfigError(
                f'ctx.state of {self.module}.{self.job} is in the host, and isolation="process" runs the handler in '
                "another process; make what it needs in the handler, or in a variable of its file"
            )

    @state.setter
    def state(self, value: Any) -> None:
        pass


class Serving:
    """The child's side of the link."""

    def __init__(self, link: Any) -> None:
        self._link = link
        # Re-entrant: a signal handler of the user's may log while a line is being sent.
        self._sending = threading.RLock()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._asks = Asks(self.say)
        self._main = threading.get_ident()
        self._journal: Journal | None = None
        self._number = -1
        self._in_handler = False
        self._shielded = False
        self._struck = False
        self._struck_at = 0.0

    def serve(self) -> None:
        """Run calls, one after the other."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        in_child(_hear_sigterm)
        threading.Thread(target=self._listen, name="jetjobs link", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._answer(call)

    # ---------------------------------------------------------------- orders

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                frame = codec.decode(self._link.recv_bytes())
                match frame[0]:
                    case "call":
                        self._calls.put(read_call(frame, self._link.recv_bytes))
                    case "answer":
                        self._asks.heard(*frame[1:])
                    case _:
                        self._stop(frame[1], frame[2])
        if self._journal is not None:
            os._exit(HOST_IS_GONE)
        self._calls.put(None)
        time.sleep(LAST_WORDS)  # threads the handlers left behind keep no child alive
        os._exit(HOST_IS_GONE)

    def _stop(self, number: int, reason: str) -> None:
        if number == self._number and self._journal is not None:
            self._journal.cancel_reason = reason
            # A long call into C lets the signal and the order behind it in at the same time, in any order.
            if self._struck and _clock.monotonic() - self._struck_at < AT_ONCE:
                os.kill(os.getpid(), signal.SIGTERM)

    def _on_sigterm(self, *_: object) -> None:
        """Interrupt the handler if it was told to stop. A SIGTERM for all of a service's processes is no such order."""
        self._struck, self._struck_at = True, _clock.monotonic()
        if self._in_handler and not self._shielded and self._journal is not None:
            self._interrupt(self._journal)

    def _interrupt(self, journal: Journal) -> None:
        if self._struck and journal.cancel_reason is not None:
            self._struck = False
            raise JobInterrupted(journal.cancel_reason)

    # ----------------------------------------------------------------- words

    def say(self, frame: list[Any]) -> None:
        """Tell the host; a frame is never cut short by an interrupt."""
        data = codec.encode(frame)
        here = threading.get_ident() == self._main
        if here:
            self._shielded = True
        try:
            with self._sending:
                self._link.send_bytes(data)
        except OSError:
            os._exit(HOST_IS_GONE)
        finally:
            if here:
                self._shielded = False
        if here and self._struck and self._in_handler and self._journal is not None:
            self._interrupt(self._journal)

    def _logger(self) -> Any:
        def tell(_: Any, method: str, said: Any) -> NoReturn:
            event = cut(str(said.pop("event", "")), MAX_TEXT)
            self.say(["said", method, event, write_fields(said)])
            raise structlog.DropEvent

        return structlog.wrap_logger(
            None,
            processors=[structlog.processors.format_exc_info, tell],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
            cache_logger_on_first_use=False,
        )

    # ------------------------------------------------------------------ work

    def _answer(self, call: Call) -> None:
        try:
            job = find(call.target)
        except BaseException as error:  # noqa: BLE001 - importing is the user's code
            # Whatever the import left half done goes with this process: the next attempt imports anew.
            self.say(["ended", True, write_ending(Raised(describe(error)))])
            return
        ending = self._ending(call, job)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self.say(["ended", False, write_ending(ending)])

    def _ending(self, call: Call, job: Job[Any, Any]) -> Ending:
        prepared = prepare(job, call.body, with_digest=False)
        if prepared.refused is not None:
            return refusal(prepared.refused)
        journal = SpokenJournal(self.say)
        context = ChildContext(
            unpack_record(call.record),
            has_state=call.has_state,
            logger=self._logger(),
            payload=prepared.value,
            journal=journal,
            clock_now=SystemClock(call.offset).now,
            children=LinkedChildren(self._asks, call.number),
        )
        verdict = Verdict(job.policy, journal)
        self._number, self._struck, self._journal = call.number, False, journal
        self._asks.begin(call.number)
        self.say(["started"])
        before = lineage()
        try:
            ending = verdict.returned(self._invoke(job, context))
        except BaseException as error:  # noqa: BLE001 - the fence around a user's handler
            ending = verdict.raised(error)
        leave_if_forked(before)
        self._journal = None
        self._asks.end()
        return ending

    def _invoke(self, job: Job[Any, Any], context: ChildContext) -> Any:
        self._in_handler = True
        try:
            return job.invoke(context, context.payload)
        finally:
            self._in_handler = False


def find(target: Target) -> Job[Any, Any]:
    """The job at that place, imported."""
    imported = [
        _main_program(target.main_file) if name == MAIN else importlib.import_module(name) for name in target.imports
    ]
    found = vars(imported[-1])[target.attribute]
    if target.is_class:
        # Kept there: its jobs must be the same ones for the next call.
        made = _made.get(found)
        found = _made.setdefault(found, found()) if made is None else made
    return found.jobs[target.job]


_made: dict[type[Module], Module] = {}


_programs: list[ModuleType] = []


def _main_program(file: str | None) -> ModuleType:
    if _programs:
        return _programs[0]
    spec = importlib.util.spec_from_file_location(_MAIN_HERE, file or "")
    if spec is None or spec.loader is None:
        msg = f"{file} can't be imported"
        raise ImportError(msg)
    made = importlib.util.module_from_spec(spec)
    sys.modules[_MAIN_HERE] = sys.modules[MAIN] = made
    spec.loader.exec_module(made)
    made.__spec__ = None  # as in a script: multiprocessing goes by its file then
    _programs.append(made)
    return made
