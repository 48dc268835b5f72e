"""A module's settings are looked at again whenever one may have changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe.adapters.pytorch.nodes import Settings


@pytest.fixture
def module() -> nn.Module:
    module = nn.Dropout(0.25)
    module.note = None  # type: ignore[assignment]  # any attribute may be set
    module.table = torch.zeros(2)
    return module


def test_settings_are_given_once(module):
    settings = Settings()
    assert settings.changed(module) == {"p": 0.25, "inplace": False, "training": True}
    assert settings.changed(module) == {}


@pytest.mark.parametrize(("name", "value"), [("p", 0.5), ("note", 1), ("table", 2.0), ("new", "x")])
def test_a_changed_attribute_is_noticed(module, name, value):
    settings = Settings()
    settings.changed(module)
    setattr(module, name, value)
    assert settings.changed(module)[name] == value


def test_a_list_changed_in_place_is_noticed(module):
    module.sizes = [1, 2]
    settings = Settings()
    settings.changed(module)
    module.sizes.append(3)
    assert settings.changed(module)["sizes"] == [1, 2, 3]


def test_no_attribute_that_is_no_setting_is_kept_alive(module):
    settings = Settings()
    settings.changed(module)
    assert all(value is not module.table for value in settings._values.values())
