"""The host's continuous pull: one inbox for all jobs, credit instead of batches.

Every job has *credit* (slots nobody was asked for yet) and *requested* (slots a pull at the server may
fill). `allow` adds credit, a request turns credit into requested, a delivery uses one up, and a pull that
ends unserved gives its rest back. So no more arrive than were allowed, whatever is lost:

    allow ──► credit ──request──► requested ──delivery──► the runner
                ▲                     │
                └── 408, 409, 503, lost connection ◄──┘

Deliveries carry the message's own subject, so only their ack subject tells whose they are, and nothing tells
which pull they answer: the sums are kept per job. A pull is asked for when nothing is requested any more, or
when half of the slots wait; a job therefore has few pulls at the server, and 100 slots cost few requests.

After a lost connection the inbox is a new one: the server may still hold the old pulls, and with the old
inbox subscribed again they would bring deliveries nobody has a slot for. Should one come uncalled all the
same, it goes back at once (nak, it was never claimed).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from nats.aio.subscription import Subscription

from jetjobs._log import get_logger
from jetjobs._nats.delivery import ACK_PREFIX, NAK, AckOutbox, NatsDelivery, consumer_at
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.rights import next_subject
from jetjobs._nats.share import AFTER_REFUSAL, Share
from jetjobs._ports import OnDelivery
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable, JetJobsError

_log = get_logger("jetjobs.nats")

EXPIRES: Final = 60.0
HEARTBEAT: Final = 5.0
HEARTBEAT_MOST: Final = 25.0  # the server wants less than half of `expires`
_CHEAP: Final = 100  # up to so many jobs every heartbeat may come at its shortest

_GATHER: Final = 0.0005
_LOOK_EVERY: Final = 1.0
_SLACK: Final = 0.5
_RETRY_RECOVERY: Final = 1.0
# Pulls end before the server has removed the consumer's files. One made again within that moment loses its own
# (measured: each third), and can't be changed any more.
_DELETION_TAKES: Final = 0.25
_NANO: Final = 1_000_000_000

# Every pull of the consumer has ended, without saying how much of it was served.
_ALL_ENDED: Final = ("Consumer Deleted", "Leadership Change", "Server Shutdown", "Consumer is push based")


class ContinuousPull:
    """All consumptions of one host, over one connection."""

    def __init__(self, link: Link, stream: str) -> None:
        self._link = link
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._outbox = AckOutbox(link.connection)
        self._inbox = ""
        self._sub: Subscription | None = None
        self._shares: dict[str, Share] = {}  # by consumer
        self._numbered: dict[str, Share] = {}  # by the inbox token
        self._numbers = 0
        self._pulls = 0
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._restore: Callable[[], Awaitable[None]] | None = None
        self._closed = False
        link.connection.on_disconnect(self._disconnected)
        link.connection.on_reconnect(self._wake.set)

    async def add(
        self, consumer: str, on_delivery: OnDelivery, recreate: Callable[[], Awaitable[None]] | None = None
    ) -> Share:
        """A share in the deliveries of a consumer; `recreate` is called when the consumer has gone."""
        before = self._shares.get(consumer)
        if before is not None and not before.stopped:
            raise BrokerError(f"consumer {consumer!r} is already consumed over this connection")
        self._numbers += 1
        share = Share(self, consumer, on_delivery)
        share.recreate = recreate
        share.number = str(self._numbers)
        share.next_subject = next_subject(self._stream, consumer)
        self._shares[consumer] = self._numbered[share.number] = share
        if self._sub is None and self._link.connection.is_connected:
            await self._listen()
        if self._keeper is None:
            self._keeper = self._loop.create_task(self._keep(), name="jetjobs pull keeper")
        return share

    async def stop(self, share: Share) -> None:
        """End one share. With the last one the inbox goes, and with it all pulls at the server."""
        if share.stopped:
            return
        share.stopped = True
        share.end_pulls()
        if share.flushing is not None:
            share.flushing.cancel()
        if all(other.stopped for other in self._shares.values()):
            await self._end_listening()
            self._shares.clear()
            self._numbered.clear()

    async def close(self) -> None:
        """Stop everything."""
        self._closed = True
        for share in list(self._shares.values()):
            await self.stop(share)
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    # -- asking

    def consider(self, share: Share) -> None:
        """Ask for a share's credit when it is worth a request."""
        if share.flushing is not None or share.credit <= 0 or share.stopped:
            return
        if share.requested and share.credit * 2 < share.largest:
            return  # the server can still deliver; the rest is asked for together
        if share.credit * 8 >= share.largest:
            share.flushing = self._loop.call_soon(self._ask, share)
        else:
            # Most slots are at work: gather a few more that end now.
            share.flushing = self._loop.call_later(_GATHER, self._ask, share)

    def _ask(self, share: Share) -> None:
        share.flushing = None
        if share.stopped or share.credit <= 0 or share.suspect or self._sub is None:
            return  # whoever ends that state asks again
        self._pulls += 1
        number = str(self._pulls)
        batch = share.credit
        # Pulls that began together shall not end together.
        expires = int((EXPIRES - self._pulls % 10) * _NANO)
        request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (batch, expires, int(self.heartbeat * _NANO))
        if self._link.connection.post(share.next_subject, request, f"{self._inbox}.{share.number}.{number}"):
            share.credit = 0
            share.requested += batch
            share.pulls[number] = batch
            share.heard_at = self._loop.time()

    @property
    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    @property
    def heartbeat(self) -> float:
        """Seconds between heartbeats of an idle pull: longer with many jobs, so that idleness stays cheap."""
        return min(max(HEARTBEAT, HEARTBEAT * len(self._shares) / _CHEAP), HEARTBEAT_MOST)

    # -- hearing

    def _received(self, message: Inbound) -> None:
        reply = message.reply
        if not reply.startswith(ACK_PREFIX):
            self._heard_status(message)
            return
        tokens = reply.split(".")
        share = self._shares.get(tokens[consumer_at(tokens)])
        if share is None or share.stopped or not share.take():
            self._outbox.send(reply, NAK)
            return
        share.heard_at = self._loop.time()
        share.on_delivery(NatsDelivery(message, tokens, self._outbox, self._link.writer))
        if share.credit:
            self.consider(share)

    def _heard_status(self, message: Inbound) -> None:
        _, _, end = message.subject.partition(self._inbox + ".")
        number, _, pull = end.partition(".")
        share = self._numbered.get(number)
        if share is None or pull not in share.pulls or not message.headers:
            return  # of a pull that ended before
        share.heard_at = self._loop.time()
        status = message.headers.get("Status", "")
        if status != "100":
            said = message.headers.get("Description", "")
            self._pull_ended(share, pull, (status, said), message.headers.get("Nats-Pending-Messages"))

    def _pull_ended(self, share: Share, pull: str, end: tuple[str, str], unserved: str | None) -> None:
        status, said = end
        size = share.pulls.pop(pull)
        if status == "409" and said.startswith(_ALL_ENDED):
            share.end_pulls()
            if said.startswith("Consumer Deleted"):
                share.deleted_at = self.now
            self._doubt(share, said)
            return
        # Without a count the request was never taken in.
        rest = min(share.requested, size if unserved is None else int(unserved))
        share.requested -= rest
        share.credit += rest
        if status == "503":
            self._doubt(share, "no responders")
        elif status in {"408", "404"} or said.startswith("Batch Completed"):
            self.consider(share)
        else:
            _log.warning("pull refused", consumer=share.consumer, status=status, description=said)
            share.refusal = (f"the broker refuses to deliver: {said} ({status})", self.now)
            self._ask_later(share)

    def _ask_later(self, share: Share) -> None:
        if share.flushing is not None:
            share.flushing.cancel()
        share.flushing = self._loop.call_later(AFTER_REFUSAL, self._ask, share)

    def _doubt(self, share: Share, why: str) -> None:
        """Have the keeper look whether the consumer is still there."""
        if not share.stopped:
            share.suspect = why
            self._wake.set()

    def doubt_consumer(self, consumer: str) -> None:
        """Nobody took an ack or a renewal of this consumer's deliveries: look whether it is still there.

        With every slot at work no pull waits at the server, and none would be told that the consumer has gone.
        """
        share = self._shares.get(consumer)
        if share is not None:
            self._doubt(share, "no responders")

    def restore_soon(self, restore: Callable[[], Awaitable[None]]) -> None:
        """Have the keeper call this, again until it succeeds."""
        self._restore = restore
        self._wake.set()

    # -- keeping

    def _disconnected(self) -> None:
        for share in self._shares.values():
            share.end_pulls()
        sub, self._sub = self._sub, None
        if sub is not None:
            self._link.connection.abandon(sub)

    async def _listen(self) -> None:
        self._inbox = self._link.connection.client.new_inbox()
        self._sub = await self._link.connection.listen(self._inbox + ".>", self._received)

    async def _end_listening(self) -> None:
        sub, self._sub = self._sub, None
        if sub is not None:
            await self._link.connection.drain(sub)

    async def _keep(self) -> None:
        """Listen again after a reconnect, notice silence, bring consumers back."""
        while not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self.heartbeat / 2, _LOOK_EVERY)):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._recover()
            except JetJobsError as failure:
                _log.warning("pull not recovered", error=str(failure))
                await asyncio.sleep(_RETRY_RECOVERY)
                self._wake.set()
            except Exception:  # noqa: BLE001  # a fence: without its keeper a host goes deaf at the next reconnect
                _log.exception("pull keeper failed")
                await asyncio.sleep(_RETRY_RECOVERY)

    async def _recover(self) -> None:
        if not self._link.connection.is_connected or not self._shares:
            return
        if self._sub is None:
            await self._listen()
        if self._restore is not None:
            await self._restore()
            self._restore = None
        self._notice_silence()
        failed: JetJobsError | None = None
        for share in list(self._shares.values()):
            try:
                await self._revive(share)
            except (BrokerUnavailable, AnswerUnknown):
                raise  # the next one wouldn't fare better
            except JetJobsError as failure:
                failed, share.trouble = failure, str(failure)
        if failed is not None:
            raise failed

    def _notice_silence(self) -> None:
        silent_since = self._loop.time() - 2 * self.heartbeat - _SLACK
        for share in self._shares.values():
            if share.requested and share.heard_at < silent_since:
                share.end_pulls()
                self._doubt(share, "missed heartbeats")
        doubts = Counter(share.suspect for share in self._shares.values() if share.suspect)
        if doubts:
            _log.info("consumers in doubt", reasons=dict(doubts))

    async def _revive(self, share: Share) -> None:
        if share.suspect and not share.stopped:
            if share.recreate is not None:
                await asyncio.sleep(max(0.0, share.deleted_at + _DELETION_TAKES - self.now))
                await share.recreate()
            share.suspect = share.trouble = ""
        self.consider(share)
