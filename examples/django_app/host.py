"""What runs the jobs: `jetjobs run host`. The ORM works once Django is set up, so that comes first."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from orders.jobs import orders as orders  # noqa: E402
