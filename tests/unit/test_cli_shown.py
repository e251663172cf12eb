"""What a terminal may be shown."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from jetjobs.cli.shown import shown


@given(st.text())
def test_no_control_is_left_and_all_else_is_as_it_was(text: str):
    result = shown(text)
    assert not [c for c in result if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]
    if text.isprintable():
        assert result == text


def test_letters_of_every_language_stay():
    for text in ("Grüße", "日本語", "👩\u200d🚀", "a\n\tb", "a\u00a0b"):
        assert shown(text) == text
    assert shown("\u202eevil\u2069\u2028") == r"\u202eevil\u2069\u2028"


def test_streams_of_a_process():
    program = (
        "import sys; from jetjobs.cli.shown import show_output; show_output()\n"
        "print('a\\x1b[1mb\\ud800'); print('c\\rd', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [rb"a\x1b[1mb\ud800"]
    assert done.stderr.split() == [rb"c\x0dd"]
