"""YAML files as OmegaConf reads and writes them, in a fraction of its time: libyaml parses and formats them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

FLOAT, TIMESTAMP = "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which one is known at run time
    """PyYAML's safe loader, except that 1e-6 is a number, a date is a string, and no key may be repeated."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if repeated := next((key for number, key in enumerate(keys) if key in keys[:number]), None):
            raise yaml.constructor.ConstructorError(None, None, f"found duplicate key {repeated}", node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # which one is known at run time
    """PyYAML's safe dumper, which also quotes strings like 1e-6, and repeats content that occurs twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


EXPONENT = re.compile(r"[-+]?(\d[\d_]*|\d*\.\d+|\d+\.)[eE][-+]?\d+$")
for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(FLOAT, EXPONENT, list("-+.0123456789"))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        OSError: it cannot be read.
        yaml.YAMLError, ValueError, RecursionError: it is not YAML.
    """
    with path.open("rb") as file:
        return yaml.load(file, _Loader)


def yaml_text(content: object) -> str:
    """Plain mappings, lists, numbers and strings as YAML, in their order."""
    text: str = yaml.dump(content, default_flow_style=False, allow_unicode=True, sort_keys=False, Dumper=_Dumper)
    return text
