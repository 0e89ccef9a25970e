"""Recipes: the frozen, validated dataclasses that a configuration is made of.

Every option of every config group names a recipe class in its ``_target_`` key; the option's other keys are the
recipe's constructor arguments. A recipe is small and cheap: creating one reads no file and does not import torch
(modules that hold recipes may say ``import torch`` but must not *use* it while being imported), so a whole
configuration is checked in milliseconds. The work is done later, by the recipe's methods.

The defaults live in ``conf/`` and nowhere else, so recipes have no default values. :func:`fedrun.config.build.option`
builds a recipe from its YAML file for those who use fedrun as a library.
"""

from pydantic import ConfigDict

STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
"""How recipes are validated: no silent conversion ("5" is not 5), no unknown keys, no infinity and no NaN."""
