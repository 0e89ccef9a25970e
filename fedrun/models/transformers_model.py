"""Text models of Hugging Face's transformers: from the hub, from a folder, or with random weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.models.adapted import AdaptedModel
from fedrun.models.base import require_text
from fedrun.system.errors import InputError, one_line
from fedrun.system.hub import hub_advice, hub_or_cache

INSTALL = "pip install 'fedrun[transformers]'"


@config_class
class TransformersModel(AdaptedModel):
    """A model of transformers for the dataset's task: for the classification of sequences or, where there is an output
    per symbol, for the next symbol (causal language modelling) or the classification of symbols.

    Attributes:
        name: of a model on the hub, or a folder that ``save_pretrained`` has written; None: ``config`` is given.
        config: the architecture of a model with random weights, as ``AutoConfig.for_model`` takes it, such as
            ``{model_type: bert, hidden_size: 64}``; None: ``name`` is given. Its ``vocab_size`` is the dataset's unless
            it says otherwise.
    """

    name: str | None
    config: Mapping[str, Any] | None

    @property
    def key(self) -> str:
        what = f"model.name={self.name}" if self.config is None else f"model.config.model_type={self._type}"
        return f"model=transformers {what}"

    @property
    def _type(self) -> str:
        return "" if self.config is None else str(self.config.get("model_type", ""))

    def check(self, spec: Spec) -> None:
        if (self.name is None) == (self.config is None):
            raise InputError(
                "model=transformers: allowed: either model.name, of the hub or a folder, or model.config, such as "
                "model.config={model_type:bert,hidden_size:64}"
            )
        require_text("transformers", spec)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        try:
            import transformers
        except ImportError:
            raise InputError(f"model=transformers: transformers is not installed; {INSTALL}") from None
        from fedrun.models.text_network import TextNetwork

        self.check(spec)
        causal = isinstance(spec.task, LanguageModelling)
        if not spec.task.per_symbol:
            kind = transformers.AutoModelForSequenceClassification
        else:
            kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForTokenClassification
        outputs = {} if causal else {"num_labels": spec.classes}
        with _quiet():
            network = self._random(kind, spec, outputs) if self.config is not None else self._loaded(kind, outputs)
        vocabulary = network.get_input_embeddings().num_embeddings
        if spec.vocabulary is not None and vocabulary < spec.vocabulary:
            raise InputError(
                f"{self.key}: knows {vocabulary} symbols; allowed: at least the dataset's {spec.vocabulary}"
            )
        network.config.use_cache = False
        if spec.padding is not None:
            network.config.pad_token_id = spec.padding
        elif network.config.pad_token_id is None:
            network.config.pad_token_id = -1  # no symbol: the last one of each text is read
        task_layers = (
            () if causal else tuple(name for name, _ in network.named_children() if name != network.base_model_prefix)
        )
        return self.adapt(TextNetwork(network, spec.padding), spec, "model", task_layers)

    def _random(self, kind: Any, spec: Spec, outputs: Mapping[str, int]) -> Any:
        """A model with random weights."""
        import transformers

        given = {"vocab_size": spec.vocabulary, **(self.config or {}), **outputs}
        given.pop("model_type", None)
        try:
            return kind.from_config(transformers.AutoConfig.for_model(self._type, **given), dtype=torch.float32)
        except (ValueError, TypeError, KeyError, ImportError) as error:
            raise InputError(
                f"{self.key}: {one_line(str(error), 200)}; allowed: a model_type of transformers, such as bert, and "
                "keys of its configuration"
            ) from None

    def _loaded(self, kind: Any, outputs: Mapping[str, int]) -> Any:
        """A model with the weights of the hub or of a folder, in float32; its layers for the task are new."""
        name = self.name or ""
        try:
            with nullcontext() if os.path.isdir(name) else hub_or_cache():
                return kind.from_pretrained(name, dtype=torch.float32, ignore_mismatched_sizes=True, **outputs)
        except (OSError, ValueError, ImportError) as error:
            if os.path.isdir(name):
                reason = one_line(str(error).strip().partition("\n")[0], 200)
                raise InputError(
                    f"model.name={name}: cannot be loaded ({reason}); allowed: a folder that save_pretrained has "
                    "written"
                ) from None
            raise InputError(f"model.name={name}: no such folder, and on the hub {hub_advice(name, error)}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and warnings, such as that the task's layers are new."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
