"""Attackers that know the round's honest uploads, and all send the same forged displacement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Rows, row_entries
from fedrun.strategies.vectors import MODEL
from fedrun.uploads.attacks.base import Attack
from fedrun.uploads.attacks.contract import check_vector


@config_class
class Colluding(Attack, ABC):
    """The attackers know every honest upload, the strongest assumption in the literature. Only models are forged.

    A round without an honest client is left as it is.
    """

    @abstractmethod
    def forged(self, honest: torch.Tensor, attackers: int) -> torch.Tensor:
        """The attackers' common displacement ``[T]``.

        Args:
            honest: the honest clients' displacements, ``[B, T]`` with B ≥ 1.
            attackers: number of attackers in the round, ≥ 1.
        """

    def replaced(
        self,
        update: CohortUpdate,
        attackers: frozenset[int],
        model: torch.Tensor,
        rows: Rows,
        layout: Layout,
    ) -> CohortUpdate:
        """A cohort's update with the attackers' uploads forged.

        Args:
            update: the cohort's update, with all rows, ``[C, P]``, which may be overwritten.
            attackers: numbers of clients.
            model: the broadcast one, ``[P]``.
            rows: what the server's strategy needs.
            layout: the position of every tensor in a model's vector.
        """
        assert update.rows is not None
        models, trainable = update.rows, layout.trainable
        attacks = torch.tensor([client in attackers for client in update.clients.tolist()])
        if attacks.any() and not attacks.all():
            device = models.device
            x = model[:trainable]
            displacement = self.forged(models[~attacks.to(device), :trainable] - x, int(attacks.sum()))
            check_vector(self, "forged", displacement, trainable)
            forged = x + displacement
            shares, mean, norms = update.shares, update.mean[MODEL].clone(), update.squared_norms
            if norms is not None:
                norms = norms.masked_fill(attacks, float((forged - x).double().square().sum()))
            for number in attacks.nonzero().flatten().tolist():
                # the mean with the attacker's model replaced
                mean[:trainable] += float(shares[number]) * (forged - models[number, :trainable])
                models[number, :trainable] = forged
            update = replace(update, mean={**update.mean, MODEL: mean}, squared_norms=norms)
        return replace(update, rows=None if rows == "none" else models[:, row_entries(rows, layout)])
