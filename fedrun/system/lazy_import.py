"""Lazy imports: ``import torch`` takes no time until an attribute of torch is used.

Importing torch takes longer than everything else that ``fedrun --help`` or a rejected configuration needs. The standard
library's ``LazyLoader`` is not sufficient: a second ``import`` statement already makes it load the module.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
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
        if name == "__path__":  # of ``import package.submodule``
            sys.meta_path.insert(0, Imported())
        spec.loader.exec_module(self)
        return getattr(self, name)


class Imported(MetaPathFinder, Loader):
    """Finds a submodule that its package has imported while ``import package.submodule`` loaded the package.

    The import system would execute it a second time, as another module that lacks the submodules of the first one.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if target is not None or name not in sys.modules:
            return None
        return ModuleSpec(name, self, loader_state=sys.modules[name].__spec__)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def lazy_import(name: str) -> None:
    """From now on, ``import name`` loads the package when it is first used, unless it is loaded already."""
    spec = importlib.util.find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = LazyModule
    del module.__path__  # so that importing a submodule loads the package first
    sys.modules[name] = module
