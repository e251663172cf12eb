"""What the engine and the client need from the outside world, as protocols.

Two implementers each, `jetjobs._nats` and `jetjobs.testing`, held together by one conformance suite.
Every coroutine here ends within its deadline and raises only errors of `jetjobs.errors`:

* `BrokerUnavailable`: not sent, nothing happened, safe to repeat;
* `AnswerUnknown`: sent, no answer in time, it may have happened: read before repeating;
* `WrongRevision`: a compare-and-set lost;
* `StorageFull`, `PermissionMissing`: refused, nothing happened.
"""

from jetjobs._ports.backend import Backend as Backend
from jetjobs._ports.backend import Keeping as Keeping
from jetjobs._ports.backend import Lifeline as Lifeline
from jetjobs._ports.broker import Broker as Broker
from jetjobs._ports.broker import DrainAnswer as DrainAnswer
from jetjobs._ports.catalog import Catalog as Catalog
from jetjobs._ports.catalog import StoredControl as StoredControl
from jetjobs._ports.delivery import Call as Call
from jetjobs._ports.delivery import CallService as CallService
from jetjobs._ports.delivery import Consumption as Consumption
from jetjobs._ports.delivery import Delivery as Delivery
from jetjobs._ports.delivery import OnCall as OnCall
from jetjobs._ports.delivery import OnDelivery as OnDelivery
from jetjobs._ports.events import EventSource as EventSource
from jetjobs._ports.events import EventSubscription as EventSubscription
from jetjobs._ports.stores import Holding as Holding
from jetjobs._ports.stores import PayloadStore as PayloadStore
from jetjobs._ports.stores import RunStore as RunStore
from jetjobs._ports.stores import ScheduleStore as ScheduleStore
from jetjobs._ports.stores import Slice as Slice
from jetjobs._ports.stores import Stored as Stored
from jetjobs._ports.stores import StoredSchedule as StoredSchedule
