"""MoFedSAM: FedSAM's gradient in FedCM's mix (Qu et al., ICML 2022)."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.strategies.fedcm import FedCMClient
from fedrun.strategies.fedsam import FedSAM


@config_class
class MoFedSAM(FedCMClient, FedSAM):
    """Step along α g(y + e) + (1 − α) m, with e of :class:`FedSAM` and m of :class:`FedCMClient`.

    A copy of this algorithm in circulation leaves the factor α out; rows made with it are of another algorithm.
    """
