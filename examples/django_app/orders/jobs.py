"""The jobs of this application. Views trigger them, `host.py` runs them."""

from __future__ import annotations

from django.db import close_old_connections

from jetjobs import Discard, JobContext, Module
from orders.models import Order

orders = Module("orders")


# A plain function: it runs in a thread, where Django's ORM is at home.
@orders.job(max_concurrency=4, max_attempts=3, timeout="1m")
def pack(ctx: JobContext, number: int) -> str:
    # What Django does around a request. Threads are used again, and their connection may have gone meanwhile.
    close_old_connections()
    order = Order.objects.filter(pk=number).first()
    if order is None:
        raise Discard(f"there is no order {number}")
    ctx.log("packing", item=order.item)
    Order.objects.filter(pk=number).update(packed=True)
    return f"{order.item} packed"
