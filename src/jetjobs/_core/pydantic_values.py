"""Which values are pydantic's, told without importing pydantic: what nobody has imported, no value can be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel
    from typing_extensions import TypeIs


def is_model(value: object) -> TypeIs[BaseModel]:
    """Whether it is an instance of a pydantic model."""
    return isinstance(value, _class("pydantic.main", "BaseModel"))


def is_model_class(kind: type[Any]) -> TypeIs[type[BaseModel]]:
    """Whether it is a pydantic model."""
    return issubclass(kind, _class("pydantic.main", "BaseModel"))


def is_secret(value: object) -> bool:
    """Whether it is something pydantic hides when it is shown."""
    return isinstance(value, tuple(_class("pydantic.types", name) for name in ("SecretStr", "SecretBytes", "Secret")))


def _class(module: str, name: str) -> Any:
    """A class of pydantic; no class at all while its module isn't imported, or in a pydantic without it."""
    return getattr(sys.modules.get(module), name, ())
