"""Host, client and command line on a real server; of these fixtures a file may have its own."""

from tests.support.fixtures import doors, field, guarded, orders

__all__ = ["doors", "field", "guarded", "orders"]
