"""Everything the reference tells, found and put on its page.

The names that can be imported from the public modules come first. What they mention (the class of a view, a record
that a call gives, the options behind `**options`) follows on the same page, until nothing new is mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import griffe

from tests.docs.api.catalogue import INNER, INNER_MODULES, PAGES, PUBLIC_MODULES, Page
from tests.docs.pages import ROOT

Thing = griffe.Class | griffe.Function | griffe.Attribute

_ALIASES = frozenset({"DurationLike", "InstantLike"})


@cache
def package() -> griffe.Module:
    """The package, read and not imported."""
    loaded = griffe.load("jetjobs", search_paths=[ROOT / "src"], resolve_aliases=True, resolve_external=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


@cache
def found(path: str) -> Thing | None:
    """What a path leads to through re-exports; `None` for a module, and for what isn't ours."""
    try:
        there = package()[path.removeprefix("jetjobs.")]
        here = there.final_target if isinstance(there, griffe.Alias) else there
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None
    if isinstance(here, griffe.Module):  # `testing.memory_backend` is a function, and the module it lies in
        here = here.members.get(here.name, here)
    return here if isinstance(here, (griffe.Class, griffe.Function, griffe.Attribute)) else None


def public_names() -> dict[str, Thing]:
    """What can be imported from the public modules, by the path a user writes."""
    names: dict[str, Thing] = {}
    for path in PUBLIC_MODULES:
        module = package() if path == "jetjobs" else package()[path.removeprefix("jetjobs.")]
        for name, member in module.members.items():
            thing = found(f"{path}.{name}")
            exported = not member.is_alias or path in {"jetjobs", "jetjobs.testing", "jetjobs.embedded"}
            if thing is not None and exported and _is_told(name, thing):
                names[f"{path}.{name}"] = thing
    return names


def shelves() -> dict[Page, list[Thing]]:
    """The things of each page, in the order they are told."""
    placed: dict[str, tuple[Page, Thing]] = {}
    for page in PAGES:
        for path in page.names:
            thing = found(path)
            assert thing is not None, f"{page.file}: there is no {path}"
            placed.setdefault(thing.path, (page, thing))
    for thing in public_names().values():
        placed.setdefault(thing.path, (_page_of(thing), thing))
    told = [thing for page in PAGES for on, thing in placed.values() if on is page]
    for thing in told:  # grows on the way
        for mentioned in _mentioned(thing):
            if mentioned.path not in placed:
                placed[mentioned.path] = (_page_of(mentioned), mentioned)
                told.append(mentioned)
    return {page: [thing for on, thing in placed.values() if on is page] for page in PAGES}


def members(owner: griffe.Class) -> list[Thing]:
    """The members of a class that are for users, in their order; options and fields are not among them."""
    told = [found(member.path) for name, member in owner.members.items() if not name.startswith("_")]
    return [
        member
        for member in told
        if member is not None
        and f"{owner.name}.{member.name}" not in INNER
        and (member.is_function or "property" in member.labels or _through(member) is not None)
    ]


def fields(owner: griffe.Class) -> list[griffe.Attribute]:
    """The fields of a class, those of its bases first."""
    inherited = [each for base in owner.resolved_bases if isinstance(base, griffe.Class) for each in fields(base)]
    own = [
        member
        for name, member in owner.members.items()
        if isinstance(member, griffe.Attribute)
        and not name.startswith("_")
        and "property" not in member.labels
        and _through(member) is None
    ]
    return [*inherited, *own]


def constructor_of(owner: griffe.Class) -> griffe.Function | None:
    """The `__init__` somebody wrote; a dataclass's own has no line."""
    found_there = owner.members.get("__init__")
    return found_there if isinstance(found_there, griffe.Function) and found_there.lineno else None


def is_made_for_users(owner: griffe.Class) -> bool:
    """False where a constructor needs what only jetjobs has."""
    constructor = constructor_of(owner)
    needed = [] if constructor is None else [each for each in constructor.parameters if each.default is None]
    return all(_is_surface(named) for each in needed for named in _names_in(each.annotation) if named.is_class)


def view_of(attribute: griffe.Attribute) -> griffe.Class | None:
    """The class of `self.runs = RunsView(…)`."""
    value = attribute.value
    if not isinstance(value, griffe.ExprCall) or not isinstance(value.function, griffe.ExprName):
        return None
    made = found(value.function.canonical_path)
    return made if isinstance(made, griffe.Class) and made.name.endswith("View") else None


def blocking_twin(attribute: griffe.Attribute) -> griffe.Function | None:
    """The async method behind `list = Blocking(AsyncRuns.list)`."""
    value = attribute.value
    if not isinstance(value, griffe.ExprCall) or str(value.function) != "Blocking":
        return None
    target = next((each for each in value.arguments if isinstance(each, griffe.ExprAttribute)), None)
    if target is None:
        return None
    owner = next(iter(target.values))
    name = owner.left if isinstance(owner, griffe.ExprSubscript) else owner
    path = f"{name.canonical_path}.{target.last.name}" if isinstance(name, griffe.ExprName) else ""
    twin = found(path)
    return twin if isinstance(twin, griffe.Function) else None


def options_of(parameter: griffe.Parameter) -> griffe.Class | None:
    """The typed dictionary behind `**options: Unpack[…]`."""
    if parameter.kind is not griffe.ParameterKind.var_keyword:
        return None
    classes = (each for each in _names_in(parameter.annotation) if isinstance(each, griffe.Class))
    return next(classes, None)


def _through(member: Thing) -> Thing | None:
    return (view_of(member) or blocking_twin(member)) if isinstance(member, griffe.Attribute) else None


def _mentioned(thing: Thing) -> Iterator[Thing]:
    for name in _expressions(thing):
        for mentioned in _names_in(name):
            if mentioned is not thing and _is_told(mentioned.name, mentioned) and _is_surface(mentioned):
                yield mentioned


def _expressions(thing: Thing) -> Iterator[object]:
    match thing:
        case griffe.Class():
            yield from thing.bases
            yield from _of_its_making(thing)
            for member in members(thing):
                yield from _expressions(member)
        case griffe.Function():
            yield thing.returns
            yield from (parameter.annotation for parameter in thing.parameters)
        case griffe.Attribute():
            through = _through(thing)
            yield thing.annotation
            if isinstance(through, griffe.Function):
                yield from _expressions(through)
            elif isinstance(thing.value, griffe.ExprCall) and through is not None:
                yield thing.value.function


def _of_its_making(owner: griffe.Class) -> Iterator[object]:
    constructor = constructor_of(owner)
    if constructor is not None and is_made_for_users(owner):
        yield from _expressions(constructor)
    if constructor is None or "dataclass" in owner.labels:
        yield from (each.annotation for each in fields(owner))


def _names_in(expression: object) -> Iterator[Thing]:
    if isinstance(expression, griffe.Expr):
        for part in (expression, *expression.iterate(flat=True)):
            if isinstance(part, griffe.ExprName) and part.canonical_path.startswith("jetjobs."):
                thing = found(part.canonical_path)
                if thing is not None:
                    yield thing


def _is_told(name: str, thing: Thing) -> bool:
    if name.startswith("_"):
        return False
    return not isinstance(thing, griffe.Attribute) or thing.name in _ALIASES or thing.has_docstring


def _is_surface(thing: Thing) -> bool:
    return isinstance(thing, griffe.Class) and not thing.path.startswith(INNER_MODULES)


def _page_of(thing: Thing) -> Page:
    """The page with the longest module that the thing is defined in."""
    fits = [
        (len(module), page) for page in PAGES for module in page.modules if f"{thing.path}.".startswith(f"{module}.")
    ]
    return max(fits, key=lambda fit: fit[0])[1]
