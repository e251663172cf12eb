"""What users test with: contexts for handlers, single runs without a server, and what a host can be tried on.

A broker in memory, a clock that stands still, ports that fail on purpose. The fixtures are in `jetjobs.pytest_plugin`.
"""

from jetjobs.testing.children import RecordedChild as RecordedChild
from jetjobs.testing.clock import ManualClock as ManualClock
from jetjobs.testing.contexts import HandlerContext as HandlerContext
from jetjobs.testing.contexts import make_context as make_context
from jetjobs.testing.failing import FailingBackend as FailingBackend
from jetjobs.testing.hosting import host_in_thread as host_in_thread
from jetjobs.testing.memory_backend import memory_backend as memory_backend
from jetjobs.testing.memory_cluster import MemoryCluster as MemoryCluster
from jetjobs.testing.runs import RunOutcome as RunOutcome
from jetjobs.testing.runs import run_job as run_job
from jetjobs.testing.runs import run_job_blocking as run_job_blocking
