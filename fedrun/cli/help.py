"""What ``fedrun --help`` lists: Hydra would name all groups, also those from which experiments choose by themselves."""

from __future__ import annotations

from collections.abc import Iterator

INTERNAL = ("hydra", "scale/", "recipe/")
"""Groups, or what lies below them, from which nobody chooses on the command line."""


def groups(above: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each config group below another one, with its options."""
    from hydra.core.global_hydra import GlobalHydra

    loader = GlobalHydra.instance().config_loader()
    for name in loader.list_groups(above):
        group = f"{above}/{name}" if above else name
        if not group.startswith(INTERNAL):
            yield group, loader.get_group_options(group)
            yield from groups(group)


def listing() -> str:
    """A line for each group that has options."""
    return "\n".join(f"{group}: {', '.join(names)}" for group, names in groups() if names)


def register(asked: bool) -> None:
    """Make the listing known to ``conf/hydra/help/fedrun.yaml``.

    Args:
        asked: whether help is asked for; every composition resolves the listing, which takes as long as the rest of it.
    """
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("groups", listing if asked else str, replace=True)
