"""The reference of the public names, written from signatures and docstrings. `make reference` writes it anew."""
