"""The documentation as HTML, for reading without a network: `python -m tests.docs.site FOLDER`."""
