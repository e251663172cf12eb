"""What a host and its child processes say to each other: lists in the payloads' own codec, never pickle.

To the child: `call` (followed by the payload as it was stored), `stop`, `answer`. From it: `started`, `log`, `said`,
`progress`, `checkpoint`, `ended`, and what the handler wants of its host: `ask`, `more`.

Whatever value goes along is packed by itself, as bytes: one nested as deep as allowed would be too deep in a frame.
"""

from __future__ import annotations

import builtins
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from jetjobs import errors
from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.completion import (
    Cancelled,
    Ending,
    Raised,
    Returned,
    ShutDown,
    Skipped,
    Snoozed,
    TimedOut,
)
from jetjobs._core.models import RunError, RunRecord
from jetjobs._core.texts import MAX_ERROR_MESSAGE, MAX_NAME, cut
from jetjobs._core.wire import pack_record, unpack_record
from jetjobs._engine.execution import shown
from jetjobs._engine.isolation import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Call(NamedTuple):
    """One start of a handler: which job, the run's record as bytes, its payload as stored, and what else is known.

    `offset` is broker time less this machine's, `has_state` whether the module's lifespan gave a state.
    """

    number: int
    target: Target
    record: bytes
    body: Body | None
    has_state: bool
    offset: timedelta

    def frames(self) -> list[bytes]:
        """What to send, in this order."""
        place = self.target
        found = [list(place.imports), place.attribute, place.is_class, place.job, place.main_file]
        encoding = None if self.body is None else self.body.encoding
        head = codec.encode(["call", self.number, found, self.record, encoding, self.has_state, self.offset])
        return [head] if self.body is None else [head, self.body.data]


def read_call(frame: list[Any], receive: Callable[[], bytes]) -> Call:
    """The call a frame begins; `receive` gives the next frame, which is the payload."""
    _, number, (imports, attribute, is_class, job, main_file), record, encoding, has_state, offset = frame
    body = None if encoding is None else Body(receive(), encoding)
    target = Target(tuple(imports), attribute, is_class, job, main_file)
    return Call(number, target, record, body, has_state, offset)


def write_ending(ending: Ending) -> list[Any]:  # noqa: PLR0911 - one for each ending
    """An ending as parts that the codec takes."""
    match ending:
        case Returned(result, late):
            return ["returned", None if result is None else result.data, late]
        case Raised(error, again, after):
            return ["raised", _parts(error), again, after]
        case TimedOut(error):
            return ["timed_out", _parts(error)]
        case Skipped(reason):
            return ["skipped", reason]
        case Snoozed(delay):
            return ["snoozed", delay]
        case Cancelled():
            return ["cancelled"]
        case ShutDown(error):
            return ["shut_down", _parts(error)]
        case _:
            assert_never(ending)


def read_ending(parts: list[Any]) -> Ending:
    """The ending in the parts."""
    return _READ[parts[0]](parts)


def whole_record(record: RunRecord) -> bytes:
    """The record as bytes, a large result with it."""
    return pack_record(record, _NO_LIMIT)


def write_fields(fields: Mapping[str, Any]) -> dict[str, bytes]:
    """A log line's fields; what JSON doesn't know goes as text."""
    return {cut(str(name), MAX_NAME): _packed(value) for name, value in fields.items()}


def read_fields(parts: Mapping[str, bytes]) -> dict[str, Any]:
    """The fields in the parts."""
    return {name: codec.decode(data) for name, data in parts.items()}


def _packed(value: object) -> bytes:
    try:
        return codec.encode(codec.to_jsonable(value))
    except errors.PayloadError:  # a number of too many digits, half a character
        return codec.encode(ascii(value))


def write_error(error: BaseException) -> list[Any]:
    """An exception for the other side: the nearest class that both know, its text, and what else it carries."""
    carried: dict[str, Any] = {}
    for name, value in vars(error).items():
        if isinstance(value, RunRecord):
            carried[name] = [_RECORD, whole_record(value)]
            continue
        with suppress(errors.PayloadError):  # what can't be stored stays behind
            carried[name] = [None, codec.encode(value)]
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ in _KNOWN)
    return [kind.__name__, cut(shown(error), MAX_ERROR_MESSAGE), carried]


def read_error(parts: list[Any]) -> BaseException:
    """The exception in the parts, of the same class and with the same attributes."""
    name, message, carried = parts
    kind: type[BaseException] = getattr(errors, name, None) or getattr(builtins, name)
    made = kind.__new__(kind, message)  # not by calling it: each class has parameters of its own
    made.args = (message,)
    for attribute, (shape, data) in carried.items():
        setattr(made, attribute, unpack_record(data) if shape == _RECORD else codec.decode(data))
    return made


_NO_LIMIT = 1 << 62
_RECORD = "record"
_KNOWN = (errors.__name__, builtins.__name__)


def _parts(error: RunError) -> list[str]:
    return [error.type, error.message, error.traceback]


_READ: Mapping[str, Callable[[list[Any]], Ending]] = {
    "returned": lambda parts: Returned(None if parts[1] is None else Body(parts[1]), late=parts[2]),
    "raised": lambda parts: Raised(RunError(*parts[1]), again=parts[2], after=parts[3]),
    "timed_out": lambda parts: TimedOut(RunError(*parts[1])),
    "skipped": lambda parts: Skipped(parts[1]),
    "snoozed": lambda parts: Snoozed(parts[1]),
    "cancelled": lambda _: Cancelled(),
    "shut_down": lambda parts: ShutDown(RunError(*parts[1])),
}
