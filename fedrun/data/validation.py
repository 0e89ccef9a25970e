"""Samples held out of training to choose settings, so that no test sample is used for the choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Lt

from fedrun.config.config_class import config_class
from fedrun.config.marks import NoEffect
from fedrun.data.evaluation_split import EvaluationSplit
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.split_samples import HeldOut, split_samples
from fedrun.system.errors import InputError
from fedrun.system.randomness import numpy_generator


@config_class
class Validation:
    """Replaces all test data by a part of the training data.

    Attributes:
        share: share of the training data, in [0, 1). Above 0 the model is evaluated on these samples only
            (``validation/*``): the test set (``test/*``), clients' test samples and unseen clients are not used.
        of: ``samples``: a share of every client's samples is held out, and each client keeps at least one;
            ``clients``: a share of the clients is held out with all their samples, as in tests on other users.
        samples: which samples of a client ``of=samples`` holds out, see
            :func:`fedrun.data.split_samples.split_samples`.
    """

    share: Annotated[float, Ge(0), Lt(1)]
    of: Annotated[Literal["samples", "clients"], NoEffect("share", (0.0,))]
    samples: Annotated[HeldOut, NoEffect("share", (0.0,)), NoEffect("of", ("clients",))]

    @property
    def evaluation_split(self) -> EvaluationSplit:
        """The samples that models are evaluated on."""
        return "validation" if self.share else "test"

    def hold_out(self, federation: Federation, seed: int) -> Federation:
        """The federation with validation samples in place of test samples; unchanged if ``share`` is 0.

        Args:
            federation: the federation with its population.
            seed: the run's seed. Validation has its own stream, so the partition does not depend on it.

        Raises:
            InputError: too few clients or samples are left to train or to validate.
        """
        if not self.share:
            return federation
        draw = numpy_generator(seed, "validation")
        return self._clients(federation, draw) if self.of == "clients" else self._samples(federation, draw)

    def _samples(self, federation: Federation, draw: np.random.Generator) -> Federation:
        overlap = federation.dataset.overlap
        train, held_out = split_samples(federation.train, self.share, self.samples, overlap, draw, "validation.samples")
        if not len(held_out.samples):
            raise InputError(
                f"validation.share={self.share}: no client has enough samples to hold one out; allowed: a larger "
                "share, or clients with more samples"
            )
        return replace(
            federation,
            train=train,
            test=ClientIndices.single(held_out.samples, "validation"),
            client_test=None if federation.client_test is None else held_out,
            unseen=None,
            evaluation_split=self.evaluation_split,
        )

    def _clients(self, federation: Federation, draw: np.random.Generator) -> Federation:
        if federation.client_test is not None:
            raise InputError("validation.of=clients: clients have test samples of their own here; allowed: samples")
        count = len(federation.train)
        number = max(1, round(self.share * count))
        if number >= count:
            raise InputError(
                f"validation.share={self.share}: of {count} clients none would train; allowed: a smaller share"
            )
        held_out = np.zeros(count, dtype=bool)
        held_out[draw.choice(count, number, replace=False)] = True
        return replace(
            federation,
            train=federation.train.select(~held_out),
            test=federation.train.select(held_out),
            flipped=None if federation.flipped is None else federation.flipped[torch.from_numpy(~held_out)],
            unseen=None,
            evaluation_split=self.evaluation_split,
        )
