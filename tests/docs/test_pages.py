"""The reader of the pages notices what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import pages as subject
from tests.docs.pages import Block, blocks, pattern
from tests.docs.reader import Reader

_PAGE = """
<!-- file: a.py -->
```python
x = 1
```

<!-- add: a.py -->
```python
y = x
```

<!-- background -->
```console
$ sleep 60
```

<!-- not run: it would -->
```console
$ false
```

```console
$ echo one; echo two
one
two
$ true
```

```toml
read = "only"
```

- in a list:

  ```python
  print("hello")
  ```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(subject, "ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(_PAGE, encoding="utf-8")
    return path


def test_each_block_is_taken_for_what_it_is(page: Path):
    found = list(blocks(page))
    assert [block.kind for block in found] == ["file", "add", "background", "left", "commands", "script"]
    assert [block.name for block in found[:4]] == ["a.py", "a.py", "", "it would"]
    assert [(command.line, command.output) for command in found[4].commands] == [
        ("echo one; echo two", "one\ntwo"),
        ("true", ""),
    ]
    assert (found[5].text, found[5].place) == ('print("hello")\n', "page.md:35")


def test_a_mark_that_means_nothing_is_refused(page: Path):
    page.write_text("<!-- background -->\n```python\nx = 1\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md:2"):
        list(blocks(page))


@pytest.mark.parametrize(
    "block",
    [
        Block("script", "raise SystemExit(3)", "here"),
        Block("commands", "$ false\n", "here"),
        Block("commands", "$ echo one\ntwo\n", "here"),
        Block("commands", "$ printf 'one\\nthree\\n'\none\ntwo\nthree\n", "here"),
        Block("background", "$ true\nnever said\n", "here"),
        Block("left", "$ true\n", "here"),
    ],
    ids=["script fails", "command fails", "other output", "line missing", "ended early", "no reason"],
)
def test_what_does_not_work_is_told(block: Block, tmp_path: Path):
    reader = Reader(tmp_path, {})
    try:
        with pytest.raises(AssertionError):
            reader.do(block)
    finally:
        reader.end()


def test_a_file_grows_by_what_is_added(tmp_path: Path):
    reader = Reader(tmp_path, {})
    for block in (Block("file", "x = 1\n", "here", "a.py"), Block("add", "y = 2\n", "here", "a.py")):
        reader.do(block)
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == "x = 1\n\n\ny = 2\n"


def test_the_ellipsis_stands_for_anything():
    assert pattern("RUN … AGE\n… ok").search("RUN  JOB  AGE  \nx ok\n")
    assert not pattern("RUN … AGE\n… ok").search("RUN  JOB  AGE\nx failed\n")
