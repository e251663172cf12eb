"""What users test with: a broker in memory, a clock that stands still, ports that fail on purpose."""

from jetjobs.testing.clock import ManualClock as ManualClock
from jetjobs.testing.failing import FailingBackend as FailingBackend
from jetjobs.testing.memory_backend import memory_backend as memory_backend
from jetjobs.testing.memory_cluster import MemoryCluster as MemoryCluster
