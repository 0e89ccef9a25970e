"""Where the head of an existing network was, before it was split off."""

from __future__ import annotations

import torch


class HeadPlace(torch.nn.Identity):
    """Takes the place of a head that was split off its network, so that the network returns the embeddings."""


def joined(network: torch.nn.Sequential) -> torch.nn.Module:
    """The existing network of an adapted one, with its head at its own place, under its own names.

    Args:
        network: an encoder and a head, as :meth:`fedrun.models.adapted.AdaptedModel.adapt` returns it; it is changed.
    """
    own, head = network.get_submodule("encoder"), network.get_submodule("head")
    for name, module in own.named_modules():
        if isinstance(module, HeadPlace):
            own.set_submodule(name, head)
            break
    return own
