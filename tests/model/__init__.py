"""An explicit-state search through one run's world, deciding by the product's own core."""
