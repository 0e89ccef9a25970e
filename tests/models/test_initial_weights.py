"""Runs that begin with the weights of a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fedrun.config.build import option
from fedrun.models.base import encoder_and_head
from fedrun.models.initial_weights import WeightsOfRun
from fedrun.models.parallel_encoders import ParallelEncoders
from fedrun.models.saved_tensors import MODEL_FILE
from fedrun.report.runs import find
from fedrun.runs.run import run
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.small_networks import advanced

QUIET = {"display": "none", "clients_per_round": 3}

MLP = option("model", "mlp", hidden=(6,))
BATCH_NORM = option("model", "custom", target="tests.helpers.small_networks.batch_norm")


def weights_of(folder: object, part: str = "model") -> WeightsOfRun:
    weights = option("initial", "run", path=str(folder), part=part)
    assert isinstance(weights, WeightsOfRun)
    return weights


@pytest.fixture
def finished(make_experiment, tmp_path: Path, plain):
    """Runs an experiment to its end; the folder above the run's."""

    def finish(model=MLP, **changes) -> Path:
        experiment = make_experiment(
            model=model, output_dir=str(tmp_path / "outputs"), **{"rounds": 2, **QUIET, **changes}
        )
        run(experiment)
        return experiment.folder.parent

    return finish


@pytest.mark.parametrize("model", [MLP, BATCH_NORM], ids=["mlp", "batch_norm"])
def test_a_run_begins_where_the_other_ended(finished, make_experiment, tmp_path, model):
    """The metrics of round 0 are those of the other run's last round, also with running statistics."""
    folder = finished(model)
    initial = weights_of(folder / "seed=0")
    later = make_experiment(model=model, initial=initial, output_dir=str(tmp_path), rounds=1, **QUIET)
    summary = run(later)
    first, last = (
        next(iter(find([path]).runs)).rows[row] for path, row in ((str(later.folder), 0), (str(folder / "seed=0"), -1))
    )
    metrics = [name for name in first if name.startswith("test/")]
    assert len(metrics) == 4
    assert [first[name] for name in metrics] == [last[name] for name in metrics]
    assert summary["initial"] == initial.fingerprint(0)
    assert summary["decisions"]["initial"] == f"all weights of {folder / 'seed=0'}"


def test_of_a_folder_with_several_seeds_the_run_takes_its_own(finished, make_experiment):
    for seed in (0, 1):
        folder = finished(seed=seed)
    for seed in (0, 1):
        simulation = Simulation(make_experiment(model=MLP, initial=weights_of(folder), seed=seed))
        saved = load_file(folder / f"seed={seed}" / MODEL_FILE)
        torch.testing.assert_close(simulation.network.tensors(simulation.initial().server.model), saved, rtol=0, atol=0)
    with pytest.raises(InputError, match=r"has neither model\.safetensors nor seed=2/model\.safetensors"):
        weights_of(folder).file(2)
    with pytest.raises(InputError, match=r"^initial\.path=\S+/mistyped: there is no such folder; allowed: the folder"):
        weights_of(folder / "mistyped").file(0)


def test_the_encoder_alone_has_a_random_head(finished, make_experiment):
    folder = finished()
    vectors = {
        name: Simulation(make_experiment(model=MLP, initial=initial)).initial().server.model
        for name, initial in (
            ("encoder", weights_of(folder, "encoder")),
            ("model", weights_of(folder)),
            ("random", option("initial", "random")),
        )
    }
    head = Simulation(make_experiment(model=MLP)).network.layout.head
    encoder = slice(0, head.start)
    torch.testing.assert_close(vectors["encoder"][encoder], vectors["model"][encoder], rtol=0, atol=0)
    torch.testing.assert_close(vectors["encoder"][head], vectors["random"][head], rtol=0, atol=0)
    assert not torch.equal(vectors["model"][head], vectors["random"][head])
    assert not torch.equal(vectors["model"][encoder], vectors["random"][encoder])


def test_a_client_that_keeps_a_part_begins_with_it(finished, make_experiment):
    """FedPer's heads are those of the other run, too, until their clients have trained."""
    folder = finished()
    strategy = option("strategy", "fedper")
    simulation = Simulation(
        make_experiment(model=MLP, strategy=strategy, initial=weights_of(folder), local={"lr": 1e-12})
    )
    held = advanced(simulation).client_states.held
    saved = load_file(folder / "seed=0" / MODEL_FILE)
    head = torch.cat([saved["head.weight"].flatten(), saved["head.bias"]])
    assert held
    for vectors in held.values():
        torch.testing.assert_close(next(iter(vectors.values())), head)


def test_adapters_are_new_around_the_weights_of_a_plain_network(tmp_path):
    class Adapted(nn.Module):
        """As peft's layer: W0 under another name, and two matrices."""

        def __init__(self) -> None:
            super().__init__()
            self.base_layer = nn.Linear(4, 5)
            self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 5, bias=False)})

    source = encoder_and_head(nn.Sequential(nn.Linear(4, 5)), nn.Linear(5, 3))
    save_file(source.state_dict(), tmp_path / MODEL_FILE)
    network = encoder_and_head(nn.Sequential(Adapted()), nn.Linear(5, 3))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    weights_of(tmp_path).load(network, 0)
    after = network.state_dict()
    assert torch.equal(after["encoder.0.base_layer.weight"], source.state_dict()["encoder.0.weight"])
    assert torch.equal(after["encoder.0.base_layer.bias"], source.state_dict()["encoder.0.bias"])
    assert torch.equal(after["head.weight"], source.state_dict()["head.weight"])
    for name in ("encoder.0.lora_A.default.weight", "encoder.0.lora_B.default.weight"):
        assert torch.equal(after[name], before[name])


def network(inputs: int = 4, hidden: int = 5, classes: int = 3, bias: bool = True) -> nn.Sequential:
    return encoder_and_head(nn.Linear(inputs, hidden, bias=bias), nn.Linear(hidden, classes))


@pytest.mark.parametrize(
    ("other", "part", "reason"),
    [
        (network(classes=7), "model", r"its head.weight has the shape \[3, 5\], the model's \[7, 5\]; allowed: a "
                                      "run with the same model, or initial.part=encoder"),
        (network(inputs=6), "encoder", r"its encoder.weight has the shape \[5, 4\], the model's \[5, 6\]; allowed: a "
                                       "run with the same model$"),
        (network(bias=False), "model", "has a tensor encoder.bias, and the model has none"),
        (encoder_and_head(nn.Sequential(nn.Linear(4, 5)), nn.Linear(5, 3)), "encoder", "has no tensor encoder.0.bias"),
    ],
)  # fmt: skip
def test_weights_of_another_model_are_rejected(tmp_path, other, part, reason):
    save_file(network().state_dict(), tmp_path / MODEL_FILE)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(InputError, match=f"initial.path={tmp_path}: {reason}"):
        weights_of(tmp_path, part).load(other, 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())


def test_the_other_classes_need_the_encoder_only(tmp_path):
    save_file(network().state_dict(), tmp_path / MODEL_FILE)
    other = network(classes=7)
    weights_of(tmp_path, "encoder").load(other, 0)
    assert torch.equal(other.state_dict()["encoder.weight"], load_file(tmp_path / MODEL_FILE)["encoder.weight"])


def test_a_file_with_several_models_is_rejected(finished, make_experiment):
    folder = finished(strategy=option("strategy", "ifca"))
    with pytest.raises(InputError, match="initial.path=.*: has 5 models; allowed: a run with one"):
        Simulation(make_experiment(model=MLP, initial=weights_of(folder)))


def test_concatenated_encoders_are_rejected(finished, make_experiment):
    folder = finished(strategy=option("strategy", "fedconcat"), rounds=2)
    with pytest.raises(InputError, match="initial.path=.*: ended with concatenated encoders; allowed: a run without"):
        Simulation(make_experiment(model=MLP, initial=weights_of(folder)))


def test_a_model_that_has_several_encoders_itself(tmp_path):
    def several(weight: float) -> nn.Sequential:
        encoders = ParallelEncoders([nn.Linear(4, 5), nn.Linear(4, 5)])
        network = encoder_and_head(encoders, nn.Linear(10, 3))
        for parameter in network.parameters():
            nn.init.constant_(parameter, weight)
        return network

    save_file(several(0.5).state_dict(), tmp_path / MODEL_FILE)
    network = several(0.0)
    weights_of(tmp_path).load(network, 0)
    assert all((parameter == 0.5).all() for parameter in network.parameters())


def test_models_that_must_differ_take_the_encoder(finished, make_experiment):
    folder, strategy = finished(), option("strategy", "ifca")
    with pytest.raises(InputError, match="initial=run with strategy/clustering=ifca, whose models must differ"):
        make_experiment(model=MLP, initial=weights_of(folder), strategy=strategy)
    initial = weights_of(folder, "encoder")
    state = Simulation(make_experiment(model=MLP, initial=initial, strategy=strategy)).initial()
    assert len({server.model.numpy().tobytes() for server in state.models}) == len(state.models) == 5


def test_what_the_clients_of_the_other_run_kept_is_no_beginning(finished, make_experiment, tmp_path):
    """Its global model has it untrained: FedPer's head, and of clients that train alone everything."""
    fedper, solo = finished(strategy=option("strategy", "fedper")), finished(strategy=option("strategy", "solo"))
    output = {"output_dir": str(tmp_path / "later"), "rounds": 1, **QUIET}
    with pytest.raises(
        InputError, match=r"client=fedper\) kept a part of the model, .*; allowed: initial.part=encoder, "
    ):
        run(make_experiment(model=MLP, initial=weights_of(fedper), **output))
    run(make_experiment(model=MLP, initial=weights_of(fedper, "encoder"), **output))
    for part in ("model", "encoder"):
        with pytest.raises(InputError, match=r"client=solo\) kept their models, .*; allowed: a run that trains all of"):
            run(make_experiment(model=MLP, initial=weights_of(solo, part), **output))
    (solo / "seed=0/.hydra/config.yaml").write_text("[")
    with pytest.raises(InputError, match=r"config.yaml: (cannot be read|is damaged) \("):
        run(make_experiment(model=MLP, initial=weights_of(solo), **output))


@pytest.mark.parametrize(
    ("earlier", "later", "warned"),
    [
        ({}, {}, False),
        ({"population": 0.0}, {}, True),
        ({"seed": 1}, {}, True),
        ({"seed": 1, "pinned": 5}, {"pinned": 5}, False),
        ({"seed": 1}, {"population": 0.0}, False),
    ],
)
def test_held_out_samples_that_the_other_run_may_have_trained_on(
    finished, make_experiment, tmp_path, caplog, earlier, later, warned
):
    default = make_experiment().population

    def settings(population: float = 0.5, seed: int = 0, pinned: int | None = None) -> dict[str, object]:
        return {
            "seed": seed,
            "partition": option("partition", "iid", clients=6, seed=pinned),
            "population": replace(default, test_share=population, seed=pinned),
        }

    folder = finished(**settings(**earlier))
    initial = weights_of(folder / f"seed={earlier.get('seed', 0)}")
    caplog.clear()
    run(make_experiment(model=MLP, initial=initial, output_dir=str(tmp_path), rounds=1, **QUIET, **settings(**later)))
    assert ("divided the same data otherwise" in caplog.text) is warned


def test_a_damaged_file_is_rejected(finished):
    file = finished() / "seed=0" / MODEL_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}: is damaged"):
        weights_of(file.parent).fingerprint(0)


def test_a_run_does_not_go_on_from_other_weights(finished, make_experiment, tmp_path):
    """Neither interrupted nor finished, if the run that it began with was computed again with another result."""
    folder = finished()
    later = make_experiment(
        model=MLP, initial=weights_of(folder / "seed=0"), output_dir=str(tmp_path / "later"), rounds=2, **QUIET
    )
    stopping = replace(later, checkpoint_seconds=0.0)
    run(stopping)
    (later.folder / "summary.json").rename(tmp_path / "summary.json")  # as if it were interrupted
    save_file({name: tensor + 1 for name, tensor in load_file(folder / "seed=0" / MODEL_FILE).items()},
              folder / "seed=0" / MODEL_FILE)  # fmt: skip
    (folder / "seed=0" / "checksums.txt").unlink()
    with pytest.raises(InputError, match="was made with other initial weights"):
        run(later)
    (tmp_path / "summary.json").rename(later.folder / "summary.json")
    with pytest.raises(InputError, match="was finished with other initial weights"):
        run(later)


def test_random_weights_do_not_change_a_folder_and_others_do(make_experiment, tmp_path):
    experiment = make_experiment(model=MLP)
    save_file(network().state_dict(), tmp_path / MODEL_FILE)
    assert replace(experiment, initial=option("initial", "random")).folder == experiment.folder
    assert replace(experiment, initial=weights_of(tmp_path)).folder != experiment.folder
