from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from jetjobs.sync import JobClient
from orders.jobs import orders, pack
from orders.models import Order

# One for the process, made at import: nothing is connected yet. Each worker that gunicorn forks connects at its first
# call. NATS_URL and JETJOBS_PROJECT say where to.
jobs = JobClient(modules=[orders])


@csrf_exempt  # for curl; a page's form would bring a token
@require_POST
def create(request: HttpRequest) -> JsonResponse:
    item = request.POST.get("item")
    if not item:
        return JsonResponse({"error": "an order needs an item"}, status=400)
    with transaction.atomic():
        order = Order.objects.create(item=item)
        # After the commit: the job must find the order, and there must be none if this is rolled back.
        transaction.on_commit(lambda: trigger(order))
    return JsonResponse({"order": order.pk, "run": order.run}, status=202)


def trigger(order: Order) -> None:
    run = pack.trigger_blocking(order.pk, idempotency_key=f"order-{order.pk}")
    order.run = run.run_id
    Order.objects.filter(pk=order.pk).update(run=run.run_id)


@require_GET
def show(request: HttpRequest, number: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=number)
    status = jobs.run("orders", "pack", order.run).status() if order.run else None
    return JsonResponse({"item": order.item, "packed": order.packed, "status": status})
