"""A page of the reference as Markdown."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from inspect import cleandoc
from typing import cast

import griffe

from jetjobs._core.durations import format_duration
from tests.docs.api.catalogue import Page
from tests.docs.api.shelf import (
    Thing,
    blocking_twin,
    constructor_of,
    fields,
    is_made_for_users,
    members,
    options_of,
    view_of,
)

_HEAD = "<!-- Written by `make reference` from signatures and docstrings; edit those. -->"
_WIDTH = 100
_FENCE = re.compile(r"^```python$", re.MULTILINE)
_CODE = re.compile(r"(?<!\[)`(?P<name>[A-Z]\w+)(?P<member>\.[a-z_]\w*)?`(?!\])")
_CONSTANT = re.compile(r"_?[A-Z][A-Z_]+")
_MEBI = 1024 * 1024
_DOCTEST = re.compile(r"^>>> ", re.MULTILINE)
_SECTION = re.compile(r"^(?P<name>Attributes|Raises):\n(?P<body>(?:^[ ]+.*\n?|^\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (?P<names>\S[^:\n]*): (?P<text>.*(?:\n {5,}.*)*)", re.MULTILINE)

Places = Mapping[str, str]
"""Where each class is told: its name and `page.md#anchor`."""


def page_text(page: Page, things: Sequence[Thing], places: Places) -> str:
    """The whole page, ending with a newline."""
    told = [_thing(thing) for thing in things]
    here = {thing.name: f"#{anchor(thing.name)}" for thing in things if isinstance(thing, griffe.Class)}
    body = "\n\n".join([_HEAD, f"# {page.title}", page.opening, *told])
    return _linked(body, {**places, **here}) + "\n"


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it.

    >>> anchor("JobHost.start")
    'jobhoststart'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _thing(thing: Thing) -> str:
    match thing:
        case griffe.Class():
            return "\n\n".join(_class(thing))
        case griffe.Function():
            return "\n\n".join([f"## {thing.name}", _fenced(_calls(thing, thing.name)), *_prose(thing)])
        case griffe.Attribute():
            value = "" if thing.has_docstring and isinstance(thing.value, griffe.ExprCall) else f" = {thing.value}"
            return "\n\n".join(
                [f"## {thing.name}", *([_fenced([thing.name + value])] if value else []), *_prose(thing)]
            )


def _class(owner: griffe.Class) -> Iterator[str]:
    yield f"## {owner.name}"
    yield _fenced(_constructor(owner))
    texts = dict(_described(_text_of(owner)))
    yield from _prose(owner)
    listed = list(_fields(owner, texts))
    if listed:
        yield "\n".join(listed)
    for member in members(owner):
        yield f"### {owner.name}.{member.name}"
        yield from _member(member)


def _member(member: Thing) -> Iterator[str]:
    if isinstance(member, griffe.Attribute):
        twin, view = blocking_twin(member), view_of(member)
        if twin is not None:
            yield _fenced(_calls(twin, member.name, awaited=False))
            yield from _prose(twin)
            return
        if view is not None:
            yield f"{_first_line(view)} See `{view.name}`."
            return
        yield _fenced([f"{member.name}: {member.annotation}"])
    elif isinstance(member, griffe.Function):
        yield _fenced(_calls(member, member.name))
    yield from _prose(member)


# ------------------------------------------------------------------ signatures


def _constructor(owner: griffe.Class) -> list[str]:
    bases = [
        str(base) for base in owner.bases if str(base).partition("[")[0] not in {"TypedDict", "Protocol", "Generic"}
    ]
    made = constructor_of(owner)
    head = f"class {owner.name}"
    if made is not None and is_made_for_users(owner):
        lines = _calls(made, head, owner=owner, returns=False)
        return [*lines[:-1], f"{lines[-1]}  # {', '.join(bases)}"] if bases else lines
    return [f"{head}({', '.join(bases)})" if bases else head]


def _calls(
    function: griffe.Function,
    name: str,
    *,
    owner: griffe.Class | None = None,
    returns: bool = True,
    awaited: bool = True,
) -> list[str]:
    """Each way to call it, over several lines where one is too long."""
    lines: list[str] = []
    for form in function.overloads or [function]:
        start = "async def " if "async" in function.labels and awaited else ""
        gives = f" -> {form.returns}" if returns and form.returns is not None else ""
        arguments = list(_arguments(form, owner))
        one = f"{start}{name}({', '.join(arguments)}){gives}"
        if len(one) <= _WIDTH:
            lines.append(one)
        else:
            lines += [f"{start}{name}(", *(f"    {argument}," for argument in arguments), f"){gives}"]
    return lines


def _arguments(function: griffe.Function, owner: griffe.Class | None) -> Iterator[str]:
    starred = False
    for parameter in function.parameters:
        if parameter.name in {"self", "cls"}:
            continue
        options = options_of(parameter)
        keyword = parameter.kind is griffe.ParameterKind.keyword_only or (options is not None and owner is not None)
        if keyword and not starred:
            starred = True
            yield "*"
        if options is None:
            starred = starred or parameter.kind is griffe.ParameterKind.var_positional
            yield _argument(parameter)
        elif owner is None:
            yield f"**options: {options.name}"
        else:
            yield from _options(options, owner)


def _options(options: griffe.Class, owner: griffe.Class) -> Iterator[str]:
    """What `**options` takes, with the defaults that a dataclass of the same fields has."""
    defaults = _defaults(owner)
    for option in fields(options):
        yield f"{option.name}: {option.annotation} = {defaults.get(option.name, '…')}"


def _defaults(owner: griffe.Class) -> dict[str, str]:
    """The defaults of a dataclass's fields as a user would write them."""
    made = getattr(import_module(owner.module.path), owner.name)
    return {
        each.name: _written(each.default)
        for each in dataclasses.fields(made)
        if each.default is not dataclasses.MISSING
    }


def _written(value: object) -> str:
    match value:
        case timedelta():
            return f'"{format_duration(value)}"'
        case int() if value > _MEBI and value % _MEBI == 0:
            return f'"{value // _MEBI}MiB"'
        case tuple():
            inner = ", ".join(_written(each) for each in cast("tuple[object, ...]", value))
            return f"({inner},)" if inner else "()"
        case type():
            return value.__name__
        case None | str() | int():
            return repr(value)
        case _:
            return f"{type(value).__name__}()"


def _argument(parameter: griffe.Parameter) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    text = stars.get(parameter.kind, "") + parameter.name if parameter.kind is not None else parameter.name
    typed = f"{text}: {parameter.annotation}" if parameter.annotation is not None else text
    if parameter.default is None or stars.get(parameter.kind or griffe.ParameterKind.keyword_only):
        return typed
    return f"{typed} = {parameter.default}"


# ------------------------------------------------------------------ texts


def _fields(owner: griffe.Class, texts: Mapping[str, str]) -> Iterator[str]:
    """The fields of a class that is made of them, or that tells of them; what its call shows isn't shown again."""
    attributes = {field.name: field for field in fields(owner)}
    # Options that a base has are told there, or where the base says.
    inherited = {name for name in attributes if name not in owner.members} if texts else set[str]()
    called = constructor_of(owner) is not None
    for name, text in texts.items():
        if name not in attributes or called:
            yield f"- `{name}`: {text}"
    if called or not _is_made_of_fields(owner):
        return
    for name, field in attributes.items():
        if name not in texts and name in inherited:
            continue
        annotation = f": {field.annotation}" if field.annotation is not None else ""
        default = "" if field.value is None or _CONSTANT.fullmatch(str(field.value)) else f" = {field.value}"
        yield f"- `{_quoted(name + annotation + default)}`" + (f": {texts[name]}" if name in texts else "")


def _is_made_of_fields(owner: griffe.Class) -> bool:
    if "dataclass" in owner.labels or any(str(base) in {"TypedDict", "NamedTuple", "StrEnum"} for base in owner.bases):
        return True
    return any(_is_made_of_fields(base) for base in owner.resolved_bases if isinstance(base, griffe.Class))


def _prose(thing: Thing) -> Iterator[str]:
    """The docstring: its text, what it raises, its examples."""
    text = _text_of(thing)
    raised = "".join(f"- `{names}`: {said}\n" for names, said in _described(text, "Raises"))
    rest = _SECTION.sub("", text).strip()
    for paragraph in re.split(r"\n\n+", rest) if rest else []:
        yield f"```pycon\n{paragraph}\n```" if _DOCTEST.match(paragraph) else _FENCE.sub("```py", paragraph)
    if raised:
        yield f"Raises:\n\n{raised}".strip()


def _described(text: str, section: str = "Attributes") -> Iterator[tuple[str, str]]:
    for block in _SECTION.finditer(text):
        if block["name"] == section:
            for entry in _ENTRY.finditer(block["body"]):
                said = re.sub(r"\s+", " ", entry["text"]).strip()
                names = entry["names"].split(", ")
                yield from [(name, said) for name in names] if section == "Attributes" else [("`, `".join(names), said)]


def _text_of(thing: Thing) -> str:
    return cleandoc(thing.docstring.value) if thing.docstring is not None else ""


def _first_line(thing: Thing) -> str:
    return _text_of(thing).partition("\n")[0]


def _fenced(lines: Iterable[str]) -> str:
    return "```py\n" + _quoted("\n".join(lines)) + "\n```"


def _quoted(code: str) -> str:
    return re.sub(r"'([^'\"\n]*)'", r'"\1"', code)


def _linked(text: str, places: Places) -> str:
    """Names in running text made links to where they are told; code blocks and headings stay."""

    def link(code: re.Match[str]) -> str:
        place = places.get(code["name"])
        return code[0] if place is None else f"[{code[0]}]({place})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _CODE.sub(link, part) for part in parts)
