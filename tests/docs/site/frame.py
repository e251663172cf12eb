"""What stands around a page: its head, the way to the others, one style. Nothing is loaded from elsewhere."""

from __future__ import annotations

from html import escape

_NAVIGATION = (
    ("index.html", "Map"),
    ("tutorial.html", "Tutorial"),
    ("how-to/troubleshoot.html", "Troubleshoot"),
    ("reference/api/README.html", "Reference"),
    ("guarantees.html", "Guarantees"),
    ("glossary.html", "Glossary"),
    ("readme.html", "README"),
    ("changelog.html", "Changes"),
)

STYLE = """\
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 54rem; padding: 0 1rem 4rem; font: 16px/1.5 system-ui, sans-serif; color: #222; }
nav { border-bottom: 1px solid #ddd; padding: .8rem 0; display: flex; flex-wrap: wrap; gap: 1rem; }
.contents { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9rem; }
a { color: #0b57a4; }
h1, h2, h3 { line-height: 1.2; margin-top: 2rem; }
h3 { font-size: 1.05rem; }
code { font: .9em ui-monospace, monospace; background: #f4f4f4; padding: 0 .2em; }
pre { background: #f8f8f8; border: 1px solid #e4e4e4; padding: .7rem; overflow-x: auto; }
pre code { background: none; padding: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top; }
"""


def framed(title: str, body: str, *, up: str) -> str:
    """A whole page; `up` leads from its folder to the site's root.

    >>> framed("A & B", "<p>x</p>", up="..").count('<a href="../')
    8
    """
    ways = "".join(f'<a href="{up}/{place}">{name}</a>' for place, name in _NAVIGATION)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} | jetjobs</title>\n"
        f'<link rel="stylesheet" href="{up}/style.css">\n</head>\n<body>\n<nav>{ways}</nav>\n<main>\n'
        f"{body}</main>\n</body>\n</html>\n"
    )
