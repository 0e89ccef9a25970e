"""The results of runs as Python objects, for notebooks and scripts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedrun.config.build import build
from fedrun.config.composed import compose
from fedrun.config.dotted_keys import value_at
from fedrun.config.recorded import completed, current
from fedrun.models.saved_tensors import MODEL_FILE
from fedrun.report.per_run import per_run_rows
from fedrun.report.runs import Run, find, read
from fedrun.runs.folder import CHECKPOINT, CLIENTS, METRICS
from fedrun.strategies.client import trains_global_model
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pandas
    import torch
    from numpy.typing import ArrayLike

    from fedrun.data.datasets.base import Dataset, DatasetConfig
    from fedrun.data.federation import Federation
    from fedrun.experiment.experiment import Experiment
    from fedrun.runs.client_models import ClientModels

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedRun:
    """A run that was read from its folder.

    Attributes:
        run: the run's files.
        own_dataset: dataset option of a run on in-memory data; None to build it from the configuration.
    """

    run: Run
    own_dataset: DatasetConfig | None = None

    def __repr__(self) -> str:
        return f"LoadedRun({str(self.folder)!r})"

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def config(self) -> Mapping[str, Any]:
        """The composed configuration, plain containers and scalars."""
        return self.run.config

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """The content of ``summary.json``; None if the run is not finished."""
        return self.run.summary

    @cached_property
    def metrics(self) -> pandas.DataFrame:
        """``metrics.jsonl``: a row per evaluated round.

        Raises:
            InputError: pandas is not installed.
        """
        return _pandas().DataFrame(list(self.run.rows))

    @cached_property
    def clients(self) -> pandas.DataFrame:
        """``clients.parquet``: a row per client.

        Raises:
            InputError: pandas is not installed, the run is not finished, or the file was deleted.
        """
        _pandas()
        import pyarrow.parquet

        return pyarrow.parquet.read_table(self._result(CLIENTS)).to_pandas()

    @cached_property
    def dataset_config(self) -> DatasetConfig:
        """The dataset option of the run.

        Raises:
            InputError: the run's data were in memory and are not given, or its configuration has no dataset.
        """
        from fedrun.data.datasets.base import require_dataset_config

        if self.own_dataset is not None:
            return self.own_dataset
        if str(value_at(self.config, "dataset._target_")).endswith(".InMemory"):
            raise InputError(f"{self.folder}: was run on data in memory; pass them: fedrun.load(folder, dataset=...)")
        dataset: DatasetConfig = self._part("dataset")
        require_dataset_config(dataset)
        return dataset

    @cached_property
    def dataset(self) -> Dataset:
        """The run's dataset, loaded.

        Raises:
            InputError: the data cannot be loaded, or they are not those of the run.
        """
        return self._checked(self.dataset_config.load())

    @cached_property
    def experiment(self) -> Experiment:
        """The run's experiment, with today's default hardware, tracking and display.

        Raises:
            InputError: the run's data were in memory and are not given, or its configuration cannot be built.
        """
        from fedrun.experiment.experiment import Experiment, build_experiment

        dataset = self.dataset_config
        names = {field.name for field in fields(Experiment)}
        # without keys that are gone
        known = {key: node for key, node in self.config.items() if key in names or node is not None}
        config = completed({key: current(node, key) for key, node in known.items()}, Experiment)
        # these change no result, and their keys of today may be others
        config |= {key: node for key, node in compose().config.items() if key in ("hardware", "tracking", "display")}
        return build_experiment(config, None if self.own_dataset is None else dataset)

    @cached_property
    def federation(self) -> Federation:
        """The clients and their samples: ``federation.train[3]`` and ``federation.client_test[3]`` are the numbers of
        the fourth client's samples in ``dataset.inputs``. It is built again from the configuration.

        Raises:
            InputError: the data cannot be loaded, or they are not those of the run.
        """
        from fedrun.simulation.prepared_federation import prepare_federation

        federation = prepare_federation(self.experiment)
        self._checked(federation.dataset)
        return federation

    def network(self, number: int | None = None) -> torch.nn.Sequential:
        """The trained network in evaluation mode, from encoded samples to logits ``[batch, classes]``.

        Args:
            number: index of the model, for a run with several (clusters); None for a run with one.

        Raises:
            InputError: the run is not finished, or has no such model or several; or its clients send no models, so that
                there is no trained global one.
        """
        from fedrun.runs.saved_model import load_network

        if number is not None and type(number) is not int:
            raise InputError(f"number={number!r}: allowed: the integer of a model, from 0; or None")
        path = self._result(MODEL_FILE)
        if not trains_global_model(self._part("strategy.client")):
            raise InputError(
                f"{self.folder}: trains no global model: the clients of strategy={self.run.strategy} keep theirs"
            )
        model = self._part("model")
        return load_network(path, model, self.dataset_config.spec, number)

    def client_network(self, client: str | int) -> torch.nn.Sequential:
        """The network by which a client is evaluated, in evaluation mode: its own in a personalised run, otherwise that
        of its cluster, if clients have test samples of their own. It is made from ``checkpoint.pt`` and the client's
        data, which are loaded the first time.

        Args:
            client: its name in ``clients.parquet``, or as an integer if clients are numbered.

        Raises:
            InputError: the run is not finished, all clients use one model, or there is no such client.
        """
        return self._client_models.network(str(client))

    def own_network(self, number: int | None = None) -> torch.nn.Module:
        """The trained network as ``model=custom``, ``timm`` or ``torchvision`` builds it, in evaluation mode, with the
        names of its own class: ``MyNetwork(...).load_state_dict(run.own_network().state_dict())``.

        Args:
            number: see :meth:`network`.

        Raises:
            InputError: see :meth:`network`; or the network is fedrun's own.
        """
        from fedrun.models.adapted import AdaptedModel
        from fedrun.models.head_place import joined

        network = self.network(number)
        if not isinstance(self._part("model"), AdaptedModel):
            raise InputError(f"{self.folder}: the model is fedrun's own; network() returns it")
        return joined(network)

    def predict(
        self,
        samples: ArrayLike,
        number: int | None = None,
        batch_size: int = 256,
        client: str | int | None = None,
    ) -> torch.Tensor:
        """The predictions for samples, on the CPU: for a classification the classes, int64 ``[n]``; for other tasks
        what :meth:`fedrun.data.tasks.base.Task.predictions` returns.

        Args:
            samples: ``[n, *input_shape]``, a tensor, an array or a data frame, as in the dataset's ``inputs``, such as
                uint8 images or the rows of a table; encoded (and standardised) as in training.
            number: index of the model, for a run with several (clusters); None for a run with one.
            batch_size: samples per forward pass.
            client: predict with the network of this client (:meth:`client_network`), not with the global one.

        Raises:
            InputError: the run is not finished, its data cannot be loaded, the samples have another shape, there is no
                such model, or a batch would have no sample.
        """
        import numpy
        import torch

        shape = self.dataset.spec.input_shape
        try:
            samples = samples if isinstance(samples, torch.Tensor) else torch.as_tensor(numpy.array(samples))
        except (TypeError, ValueError) as error:
            raise InputError(f"samples: a {type(samples).__name__}, not numbers ({error})") from None
        if samples.ndim != len(shape) + 1 or tuple(samples.shape[1:]) != shape:
            expected = ", ".join(map(str, ("n", *shape)))
            raise InputError(f"samples of shape {list(samples.shape)}; allowed: [{expected}]")
        stored = self.dataset.inputs.dtype
        if samples.is_floating_point() and not stored.is_floating_point:  # such as pixels that are already divided
            found, allowed = (str(dtype).removeprefix("torch.") for dtype in (samples.dtype, stored))
            raise InputError(f"samples are {found}; allowed: {allowed}, as the dataset's inputs, before their encoding")
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size}: allowed: at least 1")
        if client is not None and number is not None:
            raise InputError(f"client={client!r} and number={number}: allowed: one of the two")
        network = self.network(number) if client is None else self.client_network(client)
        with torch.no_grad():
            task, encode = self.dataset.spec.task, self.dataset.encoding
            batches = [task.predictions(network(encode(batch))) for batch in torch.split(samples, batch_size)]
        return torch.cat(batches)

    @cached_property
    def _client_models(self) -> ClientModels:
        """The clients' models.

        Raises:
            InputError: see :meth:`client_network`.
        """
        from fedrun.runs.client_models import ClientModels

        self._result(CHECKPOINT)
        return ClientModels(self.experiment, self.federation, self.folder, self.summary or {})

    def _checked(self, dataset: Dataset) -> Dataset:
        """A loaded dataset, after the check that it is the run's."""
        if self.run.data not in (None, dataset.fingerprint):
            raise InputError(f"{self.folder}: was run on other data (the dataset's content has changed since)")
        return dataset

    def _part(self, path: str) -> Any:
        """The object of a node of the configuration, such as ``strategy.client``."""
        return build(current(value_at(self.config, path), path), path)

    def _result(self, name: str) -> Path:
        """A file of the finished run."""
        if not self.run.complete:
            raise InputError(f"{self.folder}: is not finished, so it has no {name}; the same command continues the run")
        if not (self.folder / name).exists():
            raise InputError(f"{self.folder / name}: is missing; restore it, or start over with overwrite=true")
        return self.folder / name


def load(folder: str | Path, dataset: DatasetConfig | None = None) -> LoadedRun:
    """Read a run from its folder; the files of a finished run are compared with their checksums.

    Examples:
        >>> run = fedrun.load(summary["folder"])
        >>> run.metrics.plot("round", "test/accuracy")
        >>> run.predict(run.dataset.inputs[:10])

    Args:
        folder: the run's folder, ``.../seed=N``.
        dataset: dataset option of a run on in-memory data; None to build it from the configuration.

    Raises:
        InputError: the folder cannot be read or holds no run, or a file is damaged.
    """
    from fedrun.data.datasets.base import require_dataset_config

    if dataset is not None:
        require_dataset_config(dataset)
    folder = Path(folder)
    try:
        found = (folder / METRICS).is_file()
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror})") from None
    if not found:
        raise InputError(f"{folder}: holds no run (no {METRICS}); fedrun.load_all reads all runs below a folder")
    return LoadedRun(read(folder)[0], dataset)


def load_all(*places: str | Path) -> pandas.DataFrame:
    """A tidy table of all runs in and below folders (default: ``outputs``): a row per run.

    The columns are those of :func:`fedrun.report.per_run.per_run_rows`: seeds and the settings that differ, the metrics
    after the last round, the best ones, rounds to targets and seconds. A warning is logged for each run that is left
    out or not finished.

    Raises:
        InputError: pandas is not installed, there is no run, or a file is damaged or cannot be read.
    """
    pandas = _pandas()
    search = find([str(place) for place in places or ("outputs",)])
    if search.damaged or not search.runs:
        raise InputError(search.damaged or search.problems[0])
    for problem in search.problems:
        log.warning("%s", problem)
    return pandas.DataFrame(per_run_rows(search.runs))


def _pandas() -> ModuleType:
    try:
        return import_module("pandas")
    except ModuleNotFoundError:
        raise InputError("pandas is not installed; pip install pandas, or fedrun's extra: fedrun[results]") from None
