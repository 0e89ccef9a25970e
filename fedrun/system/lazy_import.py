"""Lazy imports: ``import torch`` takes no time until an attribute of torch is used.

Importing torch takes longer than everything else that ``fedrun --help`` or a rejected configuration needs. The standard
library's ``LazyLoader`` is not sufficient: a second ``import`` statement already makes it load the module.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A module that is executed at the first access to an attribute that it lacks."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        self.__class__ = ModuleType  # type: ignore[assignment]  # mypy takes an instance's class for fixed
        self.__path__ = spec.submodule_search_locations or []
        spec.loader.exec_module(self)
        return getattr(self, name)


def lazy_import(name: str) -> None:
    """From now on, ``import name`` loads the package when it is first used, unless it is loaded already."""
    spec = importlib.util.find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = LazyModule
    del module.__path__  # so that importing a submodule loads the package first
    sys.modules[name] = module
