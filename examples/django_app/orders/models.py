from __future__ import annotations

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=200)
    packed = models.BooleanField(default=False)
    run = models.CharField(max_length=128, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}: {self.item}"
