"""How Hypothesis behaves here: by what it finds, never by how busy the machine is."""

from hypothesis import HealthCheck, settings

# 50 examples a property keep all of them within seconds; the seed is new each run, so nights add up.
settings.register_profile("unit", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
