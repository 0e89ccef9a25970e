"""Text models of Hugging Face's transformers: from the hub, from a folder, or with random weights."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch

from fedrun.config.config_class import PlainValue, config_class
from fedrun.config.suggestions import did_you_mean
from fedrun.data.datasets.base import Spec
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.models.adapted import AdaptedModel
from fedrun.models.base import require_text
from fedrun.system.errors import InputError, one_line
from fedrun.system.extras import require_package
from fedrun.system.hub import hub_or_cache, no_folder


@config_class
class TransformersModel(AdaptedModel):
    """A model of transformers for the dataset's task: for the classification of sequences or, where there is an output
    per symbol, for the next symbol (causal language modelling) or the classification of symbols.

    Attributes:
        name: name of a model on the hub, or a folder that ``save_pretrained`` has written; None: ``config`` is given.
        config: the architecture of a model with random weights, as ``AutoConfig.for_model`` takes it, such as
            ``{model_type: bert, hidden_size: 64}``; None: ``name`` is given. Its ``vocab_size`` is the dataset's unless
            it says otherwise. So is its ``pad_token_id``: no symbol, if the dataset's texts have no padding.
    """

    name: str | None
    config: Mapping[str, PlainValue] | None
    reads_any_length: ClassVar[bool] = True

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
        require_package("transformers", "transformers", "model=transformers")
        import transformers

        from fedrun.models.text_network import TextNetwork

        causal = isinstance(spec.task, LanguageModelling)
        if not spec.task.per_symbol:
            kind = transformers.AutoModelForSequenceClassification
        else:
            kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForTokenClassification
        outputs: dict[str, Any] = {} if causal else {"num_labels": spec.classes}
        with _quiet():
            network = (
                self._random(kind, spec, outputs) if self.config is not None else self._loaded(kind, outputs, causal)
            )
        vocabulary = len(network.get_input_embeddings().weight)
        if spec.vocabulary is not None and vocabulary < spec.vocabulary:
            raise InputError(
                f"{self.key}: knows {vocabulary} symbols; allowed: at least the dataset's {spec.vocabulary}"
            )
        network.config.use_cache = False
        chosen = self.config is not None and self.config.get("pad_token_id") is not None
        if not chosen:
            _set_padding(network, spec.padding, is_random=self.config is not None)
        task_layers = (
            () if causal else tuple(name for name, _ in network.named_children() if name != network.base_model_prefix)
        )
        texts = TextNetwork(network, spec.padding, None if chosen else _first_position(network))
        if causal:
            _check_order(texts, spec, self.key)
        adapted = self.adapt(texts, spec, "model", task_layers)
        _check_padding(adapted, spec, self.key)
        return adapted

    def _random(self, kind: Any, spec: Spec, outputs: Mapping[str, int]) -> Any:
        """A model with random weights."""
        import transformers

        own = {key: value for key, value in (self.config or {}).items() if key != "model_type"}
        try:
            self._check_keys(own)
            usual: dict[str, Any] = {"vocab_size": spec.vocabulary}
            padding = getattr(transformers.AutoConfig.for_model(self._type), "pad_token_id", None)
            if padding is not None and padding >= (own.get("vocab_size") or spec.vocabulary or math.inf):
                usual["pad_token_id"] = spec.padding  # the architecture's, such as ModernBERT's 50283, is not a symbol
            config = transformers.AutoConfig.for_model(self._type, **{**usual, **own, **outputs})
            if isinstance(spec.task, LanguageModelling):
                _only_backwards(config)
            return kind.from_config(config, dtype=torch.float32)
        except InputError:
            raise
        except Exception as error:  # each architecture raises errors of its own kinds
            reason = one_line(str(error) or type(error).__name__, 200)
            raise InputError(
                f"{self.key}: {reason}; allowed: a model_type of transformers, such as bert, and keys of its "
                "configuration"
            ) from error

    def _check_keys(self, own: Mapping[str, Any]) -> None:
        """Reject keys that the architecture's configuration would store without using them."""
        import transformers

        usual = transformers.AutoConfig.for_model(self._type)
        unknown = {key: value for key, value in own.items() if not hasattr(usual, key)}
        for key, value in unknown.items():  # some are translated, such as rope_theta; the others are merely stored
            stored = {**usual.to_dict(), key: value}
            if transformers.AutoConfig.for_model(self._type, **{key: value}).to_dict() == stored:
                raise InputError(
                    f"{self.key}: it has no key {key}; allowed: keys of {type(usual).__name__}"
                    f"{did_you_mean(key, usual.to_dict())}"
                )

    def _loaded(self, kind: Any, outputs: Mapping[str, int], causal: bool) -> Any:
        """A model with the weights of the hub or of a folder, in float32; its layers for the task are new."""
        import transformers

        name = self.name or ""
        try:
            with nullcontext() if os.path.isdir(name) else hub_or_cache():
                config = transformers.AutoConfig.from_pretrained(name, **outputs)
                if causal:
                    _only_backwards(config)
                return kind.from_pretrained(name, config=config, dtype=torch.float32, ignore_mismatched_sizes=True)
        except Exception as error:  # damaged files raise errors of each library's own kinds
            if os.path.isdir(name):
                reason = one_line(str(error).strip().partition("\n")[0], 200)
                raise InputError(
                    f"model.name={name}: cannot be loaded ({reason}); allowed: a folder that save_pretrained has "
                    "written"
                ) from error
            raise InputError(no_folder("model.name", name, error)) from error


def _set_padding(network: Any, padding: int | None, is_random: bool) -> None:
    """Make this symbol the padding instead of the architecture's, such as BERT's 0, in place; None: no symbol is.

    The embedding of the architecture's padding is 0 in a random network, and gets a value like those of the others.
    """
    embedding = network.get_input_embeddings()
    usual = getattr(embedding, "padding_idx", None)
    if usual is not None and usual != padding:
        embedding.padding_idx = padding
        if is_random:
            with torch.no_grad():
                others = torch.cat([embedding.weight[:usual], embedding.weight[usual + 1 :]])
                embedding.weight[usual].normal_(0.0, float(others.std()))
                if padding is not None:
                    embedding.weight[padding] = 0.0  # some architectures, such as MobileBERT, read the next symbol's
    network.config.pad_token_id = -1 if padding is None else padding  # -1 is not a symbol: the last one is read


def _first_position(network: Any) -> int | None:
    """The number of a text's first position where the network counts positions by symbols that are not its padding, as
    RoBERTa does; None: it does not.
    """
    for module in network.modules():
        positions = getattr(module, "position_embeddings", None)
        if isinstance(positions, torch.nn.Embedding) and positions.padding_idx is not None:
            return positions.padding_idx + 1
    return None


def _only_backwards(config: Any) -> None:
    """Make an encoder such as BERT a decoder, in place: its symbols would see those that they predict."""
    if hasattr(config, "is_decoder"):
        config.is_decoder = True


def _check_order(network: torch.nn.Module, spec: Spec, key: str) -> None:
    """Reject a network whose output for a symbol depends on a later one."""
    last = torch.arange(2).unsqueeze(1)
    symbols = torch.cat([torch.zeros(2, spec.input_shape[0] - 1, dtype=torch.int64), last], dim=1)
    with torch.no_grad():
        first, second = network.eval()(symbols)[:, :-1]
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-5):
        raise InputError(
            f"{key}: its outputs for a symbol depend on the next ones, which they predict; allowed: a causal language "
            "model, such as gpt2"
        )


def _check_padding(network: torch.nn.Module, spec: Spec, key: str) -> None:
    """Reject a network whose output for a text depends on how far the text is padded."""
    if spec.padding is None or spec.input_shape[0] == 1:
        return
    text = torch.full((1, 1), 0 if spec.padding else 1)
    padded = torch.cat([text, torch.full((1, min(spec.input_shape[0], 8) - 1), spec.padding)], dim=1)
    with torch.no_grad():
        alone, beside = (network.eval()(symbols)[0] for symbols in (text, padded))
    if not torch.allclose(alone, beside[:1] if spec.task.per_symbol else beside, rtol=1e-3, atol=1e-5):
        raise InputError(
            f"{key}: its outputs for a text depend on how many padding symbols follow it; allowed: a model that reads "
            "only a text's own symbols, such as bert"
        )


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
