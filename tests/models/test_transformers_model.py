"""Text models of transformers: random weights, folders, tasks, adapters, and what is refused."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Dataset, Spec, Symbols
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.execution.vectorized import Vectorized
from fedrun.experiment.experiment import build_experiment
from fedrun.models.flat_network import FlatNetwork, layout_of
from fedrun.models.lora import LoRA
from fedrun.models.lora_layout import adapted_layers
from fedrun.runs.saved_model import load_network, save_model
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..conftest import first_executor

pytestmark = pytest.mark.needs("transformers", "peft")

TEXTS = Spec((6,), 3, vocabulary=11)

BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 6,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 6, "bos_token_id": 0,
        "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # fmt: skip

QUERY_VALUE = LoRA(rank=1, alpha=2.0, targets=("query", "value"), dropout=0.0)


def text_model(**changes):
    return replace(option("model", "transformers"), **changes)


def texts(spec=TEXTS, count=70):
    draw = torch.Generator().manual_seed(5)
    inputs = torch.randint(0, spec.vocabulary, (count, 6), generator=draw)
    targets = inputs.roll(-1, 1) if spec.task.per_symbol else inputs[:, 0] % 3
    names = tuple(map(str, range(spec.classes)))
    return Dataset(spec, Symbols(), inputs.to(torch.uint8), targets, 60, None, names, "texts")


def test_a_classifier_of_texts_has_a_head():
    import transformers

    torch.manual_seed(1)
    network = text_model(config=BERT).build(TEXTS).eval()
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(**BERT, vocab_size=11, num_labels=3)
    expected = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    symbols = texts().inputs[:4].long().clamp(min=1)  # 0 is BERT's padding, but not this dataset's
    with torch.no_grad():
        assert torch.equal(network(symbols), expected(symbols).logits)
    assert (layout_of(network).classes, layout_of(network).embedding) == (3, 16)


def test_adapters_are_all_of_the_vector_but_the_head():
    network = FlatNetwork(text_model(config=BERT, lora=QUERY_VALUE).build(TEXTS))
    attention = "encoder.model.bert.encoder.layer.0.attention.self."
    names = [slot.name.removeprefix(attention) for slot in network.layout.slots]
    assert names == [
        "query.lora_A.default.weight",
        "query.lora_B.default.weight",
        "value.lora_A.default.weight",
        "value.lora_B.default.weight",
        "head.weight",
        "head.bias",
    ]
    assert network.layout.size == 2 * (16 + 16) + 3 * 16 + 3
    assert network.frozen_size > 20 * network.layout.size  # θ is under 5 % of the model


def test_a_language_model_has_no_head_and_a_tied_weight_once():
    spec = Spec((6,), 11, vocabulary=11, task=LanguageModelling())
    network = FlatNetwork(text_model(config=GPT2).build(spec))
    assert network.layout.head_size == 0
    assert sum("wte" in slot.name or "lm_head" in slot.name for slot in network.layout.slots) == 1
    assert network.network(torch.zeros(2, 6, dtype=torch.int64)).shape == (2, 6, 11)


def test_a_classifier_that_reads_the_last_symbol_has_a_head():
    network = text_model(config=GPT2).build(TEXTS).eval()
    symbols = texts().inputs[:4].long()
    embeddings = network.get_submodule("encoder")(symbols)
    assert embeddings.shape == (4, 16)
    changed = symbols.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    assert not torch.allclose(network.get_submodule("encoder")(changed), embeddings)


def test_padding_is_not_attended_to():
    network = text_model(config=BERT).build(replace(TEXTS, padding=10)).eval()
    short, long = torch.tensor([[1, 2, 3, 10, 10, 10]]), torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(network(short), network(long), rtol=1e-4, atol=1e-5)


ROBERTA = {**BERT, "model_type": "roberta", "max_position_embeddings": 8}
OPT = {"model_type": "opt", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 24,
       "word_embed_proj_dim": 16, "max_position_embeddings": 6, "dropout": 0.0}  # fmt: skip


@pytest.mark.parametrize(("config", "usual"), [(BERT, 0), (ROBERTA, 1), (OPT, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_the_architectures_padding_is_a_symbol_of_texts_without_padding(config, usual, causal):
    spec = Spec((6,), 11, vocabulary=11, task=LanguageModelling()) if causal else TEXTS
    network = text_model(config=config).build(spec).eval()
    (embedding,) = [module for module in network.modules() if getattr(module, "num_embeddings", 0) == 11]
    norms = embedding.weight.detach().norm(dim=1)
    assert norms.max() / 3 < norms[usual] < 3 * norms.min()
    symbols = torch.tensor([[3, usual, 4, usual, 5, usual]])
    positions = []
    for name, module in network.named_modules():
        if "position" in name and isinstance(module, torch.nn.Embedding):
            module.register_forward_hook(
                lambda module, args, kwargs, output: positions.append(output), with_kwargs=True
            )
            table = module.weight.detach()
    network(symbols).square().sum().backward()
    assert embedding.weight.grad[usual].norm() > 0
    offset = len(table) - 6  # each of the six positions has its own row of the table, the last six ones
    assert torch.equal(positions[0].detach().reshape(6, 16), table[offset:])


def test_the_last_symbol_counts_where_it_is_the_architectures_padding():
    """OPT's classifier would read the symbol before the last one."""
    network = text_model(config=OPT).build(TEXTS).eval()
    with torch.no_grad():
        ends = network(torch.tensor([[3, 4, 5, 6, 7, 1], [3, 4, 5, 6, 7, 8]]))
        before = network(torch.tensor([[3, 4, 5, 6, 7]]))
    assert min((ends[0] - ends[1]).abs().max(), (ends - before).abs().max(1).values.min()) > 1e-3


@pytest.mark.parametrize("config", [BERT, ROBERTA, OPT])
def test_the_datasets_padding_replaces_the_architectures(config):
    """Positions are those of texts without it, whatever its number is."""
    network = text_model(config=config).build(replace(TEXTS, padding=10)).eval()
    short, long = torch.tensor([[1, 0, 1, 10, 10, 10]]), torch.tensor([[1, 0, 1]])
    torch.testing.assert_close(network(short), network(long), rtol=1e-4, atol=1e-5)
    (embedding,) = [module for module in network.modules() if getattr(module, "num_embeddings", 0) == 11]
    assert (embedding.padding_idx, embedding.weight[:2].norm(dim=1).min() > 0) == (10, True)


XLNET = {"model_type": "xlnet", "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24}
FNET = {"model_type": "fnet", "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24}
MOBILEBERT = {**BERT, "model_type": "mobilebert"}
MODERNBERT = {**{key: value for key, value in BERT.items() if "dropout" not in key}, "model_type": "modernbert"}


@pytest.mark.parametrize("config", [BERT, GPT2, MOBILEBERT, MODERNBERT], ids=lambda config: config["model_type"])
def test_an_output_does_not_depend_on_how_far_a_text_is_padded(config):
    network = text_model(config=config).build(replace(TEXTS, padding=10)).eval()
    text = torch.tensor([[3, 5, 2]])
    padded = torch.tensor([[3, 5, 2, 10, 10, 10]])
    with torch.no_grad():
        torch.testing.assert_close(network(padded), network(text), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("config", [XLNET, FNET], ids=lambda config: config["model_type"])
def test_a_model_that_reads_padding_is_refused(config):
    text_model(config=config).build(TEXTS)  # without padding
    with pytest.raises(InputError, match=r"^model=transformers .*: its outputs for a text depend on how many paddin"):
        text_model(config=config).build(replace(TEXTS, padding=10))


def test_a_padding_of_ones_own_stays():
    network = text_model(config={**BERT, "pad_token_id": 4}).build(TEXTS)
    embedding = network.get_submodule("encoder.model.bert.embeddings.word_embeddings")
    assert (embedding.padding_idx, float(embedding.weight[4].detach().norm())) == (4, 0.0)


def test_batches_of_padded_texts_are_cut(experiment):
    seen = []
    simulation = Simulation(experiment(spec=replace(TEXTS, padding=10)))
    simulation.network.network.encoder.model.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    simulation.phase(simulation.initial()).samples.inputs[:, 4:] = 10
    simulation.advance(simulation.initial())
    assert max(seen) == 4


def test_the_weights_of_a_folder(tmp_path):
    import transformers

    torch.manual_seed(2)
    config = transformers.AutoConfig.for_model(**BERT, vocab_size=11)
    base = transformers.AutoModel.from_config(config)
    base.save_pretrained(tmp_path)
    network = text_model(name=str(tmp_path)).build(TEXTS)
    weights = network.get_parameter("encoder.model.bert.embeddings.word_embeddings.weight")
    assert torch.equal(weights, base.embeddings.word_embeddings.weight)


@pytest.mark.parametrize("changes", [{}, {"name": "a", "config": BERT}])
def test_either_a_name_or_a_configuration(changes):
    with pytest.raises(InputError, match=r"^model=transformers: allowed: either model.name, .*, or model.config"):
        text_model(**changes).check(TEXTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"config": {"model_type": "bort"}},
            r"^model=transformers model.config.model_type=bort: .*; allowed: a",
        ),
        (
            {"config": {**BERT, "hidden_sizes": 8}},
            r"=bert: it has no key hidden_sizes; allowed: keys of BertConfig; did you mean hidden_size\?",
        ),
        ({"config": {**BERT, "hidden_size": "x"}}, r"^model=transformers model.config.model_type=bert: .*; allowed: a"),
        ({"config": {**BERT, "hidden_size": -8}}, r"^model=transformers model.config.model_type=bert: .*; allowed: a"),
        ({"config": {**BERT, "hidden_size": 0}}, r"^model=transformers model.config.model_type=bert: .*; allowed: a"),
        ({"config": {**BERT, "vocab_size": 5}}, r"knows 5 symbols; allowed: at least the dataset's 11$"),
        ({"config": {**BERT, "max_position_embeddings": 5}}, r"rejects 2 samples of shape 6 in training"),
        (
            {"config": BERT, "freeze": ("query",)},
            r"^model.freeze: no parameter of .* matches 'query'; allowed",
        ),
        ({"config": BERT, "lora": replace(QUERY_VALUE, targets=("q",))}, r"^model.lora.targets=\[q\]: "),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        text_model(**changes).build(TEXTS)


@pytest.mark.parametrize("loaded", [False, True])
def test_no_output_of_a_language_model_depends_on_later_symbols(tmp_path, loaded):
    import transformers

    torch.manual_seed(0)
    if loaded:  # weights of an encoder that reads in both directions
        config = transformers.AutoConfig.for_model(**BERT, vocab_size=11)
        transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    source = {"name": str(tmp_path)} if loaded else {"config": BERT}
    network = text_model(**source).build(replace(TEXTS, task=LanguageModelling(), classes=11)).eval()
    outputs = network(torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 9]]))
    torch.testing.assert_close(outputs[0, :5], outputs[1, :5])
    assert not torch.allclose(outputs[0, 5], outputs[1, 5])


def test_a_language_model_that_reads_in_both_directions_is_refused(monkeypatch):
    monkeypatch.setattr("fedrun.models.transformers_model._only_backwards", lambda config: None)
    with pytest.raises(InputError, match=r"=bert: its outputs for a symbol depend on the next ones, .*, such as gpt2$"):
        text_model(config={**BERT, "initializer_range": 1.0}).build(
            replace(TEXTS, task=LanguageModelling(), classes=11)
        )


def test_a_damaged_file_of_weights(tmp_path):
    import transformers

    transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**BERT, vocab_size=11)).save_pretrained(
        tmp_path
    )
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match=rf"^model.name={tmp_path}: cannot be loaded .* save_pretrained has written$"):
        text_model(name=str(tmp_path)).build(TEXTS)


def test_keys_that_a_configuration_uses_without_having_them():
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    config = {"model_type": "llama", **shape, "rope_theta": 500.0, "attn_implementation": "eager"}
    made = text_model(config=config).build(replace(TEXTS, padding=10)).encoder.model.config
    assert made.rope_parameters["rope_theta"] == 500.0 and made._attn_implementation == "eager"


def test_a_folder_without_a_model_and_a_hub_that_cannot_be_reached(tmp_path, monkeypatch):
    import transformers

    with pytest.raises(InputError, match=rf"^model.name={tmp_path}: cannot be loaded .* save_pretrained has written$"):
        text_model(name=str(tmp_path)).build(TEXTS)
    monkeypatch.setattr(transformers.utils.hub, "is_offline_mode", lambda: True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"^model.name=some/bert: no such folder, .* hf download some/bert .* here$"):
        text_model(name="some/bert").build(TEXTS)


@pytest.fixture
def experiment(make_experiment):
    def make(strategy="fedavg", lora=QUERY_VALUE, spec=TEXTS, config=BERT, executor="in_process", **changes):
        chosen = build_experiment(compose([f"strategy={strategy}"])).strategy
        return make_experiment(
            dataset=texts(spec), sizes=(20, 16, 24), clients_per_round=2, strategy=chosen,
            model=text_model(config=config, lora=lora), hardware={"executor": executor}, **changes,
        )  # fmt: skip

    return make


@pytest.mark.parametrize(("config", "dense"), [(BERT, 0), (ROBERTA, 16 * 16 + 16)])
def test_fedsalora_sends_a_alone(experiment, config, dense):
    """RoBERTa's classifier has a dense layer below the last one, which is new and trained as well."""
    simulation = Simulation(experiment("fedsalora", config=config))
    assert simulation.network.layout.trainable == 115 + dense
    state, _ = simulation.advance(simulation.initial())
    assert state.totals.params_up == 2 * 2 * 16  # two clients, A of query and of value


def test_clients_send_adapters_and_receive_the_model_once(experiment, tmp_path):
    run = experiment()
    simulation = Simulation(run)
    frozen = simulation.network.frozen_size
    initial = simulation.initial()
    state, _ = simulation.advance(initial)
    assert state.totals.params_up == 2 * 115  # 2 (16 + 16) + 3 · 16 + 3
    assert state.totals.params_down == 3 * frozen + 2 * 115
    assert 0.05 * (115 + frozen) > 115
    save_model(simulation.phase(state), state, tmp_path / "model.safetensors")
    saved = load_network(tmp_path / "model.safetensors", run.model, TEXTS)
    simulation.network.load(state.server.model)
    symbols = texts().inputs[:4].long()
    assert torch.equal(saved(symbols), simulation.network.network.eval()(symbols))


def test_clients_side_by_side_train_the_same(experiment):
    states = []
    for executor in ("in_process", "vectorized"):
        simulation = Simulation(experiment(executor=executor))
        assert Vectorized.unsupported(first_executor(simulation).context) is None
        states.append(simulation.advance(simulation.initial())[0].server.model)
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


LANGUAGE = {
    "spec": Spec((6,), 11, vocabulary=11, task=LanguageModelling()),
    "config": GPT2,
    "lora": LoRA(rank=2, alpha=4.0, targets=("c_attn",), dropout=0.0),
    "targets": (),
}


def test_adapters_of_transposed_weights_are_inserted_without_pefts_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = text_model(config=GPT2, lora=LANGUAGE["lora"]).build(LANGUAGE["spec"])
    (layer,) = adapted_layers(network).values()
    assert layer.fan_in_fan_out  # weights [in, out]


@pytest.mark.parametrize(
    "changes", [{"lora": replace(QUERY_VALUE, dropout=0.1)}, {"spec": replace(TEXTS, padding=10)}, LANGUAGE]
)
def test_what_cannot_be_computed_side_by_side_is_refused(experiment, changes):
    context = first_executor(Simulation(experiment(**changes))).context
    assert re.fullmatch("a model (with Dropout layers|that torch.vmap cannot .*)", Vectorized.unsupported(context))
