"""Synthetic(alpha, beta): each client has its own classifier and data distribution (Li et al., 2020, FedProx)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.config.marks import NoEffect
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Spec, Users
from fedrun.data.offsets import offsets_of
from fedrun.system.errors import InputError
from fedrun.system.fingerprint import fingerprint
from fedrun.system.randomness import numpy_generator


@config_class
class Synthetic(DatasetConfig):
    """Client k draws ``x ~ N(v_k, diag(j^-1.2))`` and labels it ``argmax(W_k x + b_k)``.

    The entries of ``W_k`` and ``b_k`` are ``N(u_k, 1)`` with ``u_k ~ N(0, alpha)``, and the entries of ``v_k`` are
    ``N(B_k, 1)`` with ``B_k ~ N(0, beta)``. Every draw has its own random stream: with more clients, other sizes or
    another switch the remaining draws stay the same.

    Every client is a training user and, under the same name, a test user, as in LEAF's split by sample.

    Attributes:
        clients: number of clients.
        features: numbers in one sample.
        classes: number of classes.
        alpha: difference between the clients' classifiers: the standard deviation of u_k, as in the published code (the
            variance in the paper; equal for 0 and 1).
        beta: difference between the clients' data: the standard deviation of B_k.
        own_classifiers: false: all clients share one classifier with entries ``N(0, 1)``, and alpha has no effect.
        own_data: false: all data are centred at 0, and beta has no effect.
        size_log_mean: a client has ``floor(LogNormal(size_log_mean, size_log_std)) + size_base`` samples.
        size_log_std: see ``size_log_mean``; 0 for equal sizes.
        size_base: see ``size_log_mean``.
        test: ``held_out`` keeps the last tenth of every client's samples for the test (Li et al.); ``training`` tests
            on the training samples (FedDyn and FedDC).
        seed: seed of all draws; independent of the run's seed, so all runs of a comparison have the same data.
    """

    clients: Annotated[int, Ge(1)]
    features: Annotated[int, Ge(1)]
    classes: Annotated[int, Ge(2)]
    alpha: Annotated[float, Ge(0), NoEffect("own_classifiers", (False,))]
    beta: Annotated[float, Ge(0), NoEffect("own_data", (False,))]
    own_classifiers: bool
    own_data: bool
    size_log_mean: Annotated[float, Le(15)]
    size_log_std: Annotated[float, Ge(0), Le(5)]
    size_base: Annotated[int, Ge(0)]
    test: Literal["held_out", "training"]
    seed: Annotated[int, Ge(0)]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(self.features,), classes=self.classes)

    def load(self) -> Dataset:
        """Draw the data; inputs are float32 ``[n, features]``.

        Raises:
            InputError: the sizes leave a client without training or test samples.
        """
        client_data = [self._client(client) for client in range(self.clients)]
        held_out = self.test == "held_out"
        train_sizes = [int(0.9 * len(y)) if held_out else len(y) for _, y in client_data]
        if min(train_sizes) < 1:
            client = int(np.argmin(train_sizes))
            raise InputError(
                f"dataset.size_log_mean={self.size_log_mean:g} and dataset.size_base={self.size_base} leave client "
                f"{client} with {len(client_data[client][1])} samples; make one of them larger"
            )
        parts = [(x[:size], y[:size]) for (x, y), size in zip(client_data, train_sizes, strict=True)]
        parts += [
            (x[size:], y[size:]) if held_out else (x, y) for (x, y), size in zip(client_data, train_sizes, strict=True)
        ]
        inputs = np.concatenate([x for x, _ in parts])
        targets = np.concatenate([y for _, y in parts])
        offsets = offsets_of([len(y) for _, y in parts])
        names = tuple(str(client) for client in range(self.clients))
        return Dataset(
            spec=self.spec,
            encoding=Scaled(divisor=1.0),
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            train_size=sum(train_sizes),
            users=Users(names + names, torch.from_numpy(offsets), self.clients),
            class_names=tuple(str(label) for label in range(self.classes)),
            fingerprint=fingerprint([self.clients, offsets, inputs, targets]),
        )

    def _client(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """One client's samples, float32 ``[n_k, features]``, and classes, int64 ``[n_k]``."""
        size, centres = numpy_generator(self.seed, "size", client), numpy_generator(self.seed, "centres", client)
        count = int(size.lognormal(self.size_log_mean, self.size_log_std)) + self.size_base
        u, b = centres.normal(0.0, [self.alpha, self.beta])
        v = centres.normal(b, 1.0, self.features) if self.own_data else np.zeros(self.features)

        address = (client,) if self.own_classifiers else ()
        classifier = numpy_generator(self.seed, "classifier", *address)
        entries = classifier.normal(u if self.own_classifiers else 0.0, 1.0, (self.classes, self.features + 1))
        weights, bias = entries[:, :-1], entries[:, -1]

        deviations = np.arange(1, self.features + 1) ** -0.6  # the square roots of j^-1.2
        samples = numpy_generator(self.seed, "samples", client).normal(v, deviations, (count, self.features))
        return samples.astype(np.float32), np.argmax(samples @ weights.T + bias, axis=1)
