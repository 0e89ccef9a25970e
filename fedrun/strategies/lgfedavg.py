"""LG-FedAvg: a private encoder per client and a shared head (Liang et al., 2020, arXiv 2001.01523)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Averaging, ClientStrategy, EvaluatedModel
from fedrun.system.errors import InputError


@config_class
class LGFedAvg(ClientStrategy):
    """Plain local SGD of the whole network; only some layers are sent, all others stay with the client.

    The paper shares the layers at the top. Its code for CIFAR-10 shares the convolutions instead.

    Attributes:
        shared: names of layers or tensors of the network that are sent, such as ``head`` or ``encoder.0.weight``.
    """

    shared: tuple[str, ...]

    reported: ClassVar[tuple[EvaluatedModel, Averaging]] = ("own", "clients")

    def private(self, layout: Layout) -> torch.Tensor:
        mask = torch.ones(layout.size, dtype=torch.bool)
        for name in self.shared:
            slots = [slot for slot in layout.slots if f"{slot.name}.".startswith(f"{name}.")]
            if not slots:
                raise InputError(
                    f"strategy.client.shared: the model has no layer or tensor {name!r}; allowed: "
                    + ", ".join(slot.name for slot in layout.slots)
                )
            for slot in slots:
                mask[slot.start : slot.stop] = False
        return mask
