"""From a trigger's body to the value a handler gets, before the run is claimed.

Payloads are fetched, decoded and validated first, so that a payload of a newer release can go back to the queue
for a newer host, and a store that is away costs no attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.completion import Raised
from jetjobs._core.texts import run_error
from jetjobs._engine.execution import shown
from jetjobs._engine.isolation import is_isolated
from jetjobs.errors import PayloadInvalidError

if TYPE_CHECKING:
    from jetjobs._ports import PayloadStore
    from jetjobs.job import Job


class Prepared(NamedTuple):
    """The value for the handler, or why there is none; `digest` is of the decoded payload.

    `fetched` has the bytes beside their claim check, where a child process is to decode them again.
    """

    value: Any = None
    digest: str | None = None
    refused: PayloadInvalidError | None = None
    fetched: Body | None = None


def refusal(why: PayloadInvalidError) -> Raised:
    """How the attempt of a run ends whose payload can't be given to its handler: no other attempt can do better."""
    return Raised(run_error(type(why).__name__, str(why)), again=False)


def prepare(job: Job[Any, Any], body: Body | None, *, with_digest: bool = True) -> Prepared:
    """Decode and validate a body whose bytes are at hand."""
    digest: str | None = None
    try:
        value = None if body is None else codec.decode(body.data, body.encoding)
        if with_digest:
            digest = codec.digest(value)
        return Prepared(_parse(job, value), digest)
    except PayloadInvalidError as error:
        return Prepared(digest=digest, refused=error)


async def fetch(job: Job[Any, Any], body: Body, payloads: PayloadStore, *, with_digest: bool = True) -> Prepared:
    """The same for a body that lies in the payload store.

    Raises:
        BrokerError: the store can't be reached; nothing is known about the payload.
    """
    if body.claim is None:
        return prepare(job, body, with_digest=with_digest)
    try:
        data = await payloads.get(body.claim)
    except PayloadInvalidError as error:
        return Prepared(refused=error)
    prepared = prepare(job, Body(data, body.encoding), with_digest=with_digest)
    return prepared._replace(fetched=Body(data, body.encoding, body.claim)) if is_isolated(job) else prepared


def _parse(job: Job[Any, Any], value: Any) -> Any:
    try:
        return job.parse_payload(value)
    except (PayloadInvalidError, KeyboardInterrupt):  # the second is for the program, and not of the payload's making
        raise
    except BaseException as error:  # A validator is the user's code, like the handler it guards; it may exit, too.
        msg = f"the payload type of {job.address} raised {type(error).__name__} while it validated: {shown(error)}"
        raise PayloadInvalidError(msg) from error
