"""The decorator of config classes: the frozen, validated dataclasses of a configuration.

Every option of every config group names a config class in its ``_target_`` key; the option's other keys are the
constructor arguments. A config class is small and cheap: creating one reads no file and does not import torch (modules
of config classes may say ``import torch`` but must not *use* it while they are imported), so a whole configuration is
checked in milliseconds. The work is done later, by the methods.

All defaults are in ``conf/``, so config classes have no default values. Users of fedrun as a library build a config
object from its YAML file with :func:`fedrun.config.build.option`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass

T = TypeVar("T")

STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
"""How config classes are validated: no silent conversion ("5" is not 5), no unknown keys, no infinity and no NaN."""


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


NameOrNumber = Annotated[str, BeforeValidator(_as_text)]
"""A text that YAML may read as an integer: layers of ``torch.nn.Sequential`` are named 0, 1, ..."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def config_class(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose constructor takes keyword arguments only and validates them (:data:`STRICT`)."""
    validated: type[T] = dataclass(frozen=True, kw_only=True, config=STRICT)(cls)  # type: ignore[assignment]  # of T
    return validated
