from __future__ import annotations

import sys

import pytest
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from jetjobs._core.pydantic_values import is_model, is_model_class, is_secret


class Order(BaseModel):
    id: int


class Plain:
    id: int = 1


def test_models():
    assert is_model(Order(id=1))
    assert is_model_class(Order)
    assert not is_model(Order)
    assert not is_model(Plain())
    assert not is_model_class(Plain)


@pytest.mark.parametrize("value", [SecretStr("s"), SecretBytes(b"s"), Secret[int](1)])
def test_secrets(value: object):
    assert is_secret(value)
    assert not is_secret("s")


def test_where_nobody_imported_it_nothing_is_pydantics(monkeypatch: pytest.MonkeyPatch):
    order, secret = Order(id=1), SecretStr("s")
    for module in ("pydantic.main", "pydantic.types"):
        monkeypatch.delitem(sys.modules, module)
    assert not is_model(order)
    assert not is_model_class(Order)
    assert not is_secret(secret)
