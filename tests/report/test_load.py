"""Results as Python objects."""

from __future__ import annotations

import copy
import csv
import io
import re
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedrun
from fedrun.config.recorded import current
from fedrun.experiment.experiment import Experiment
from fedrun.report.load import LoadedRun
from fedrun.report.per_run import per_run_csv
from fedrun.report.runs import Run
from fedrun.system.yaml_file import read_yaml

from ..helpers.run_folders import CONFIG, Folders, rows

PUBLISHED = Path(__file__).parents[2] / "docs" / "runs"

SETTING = ("partition.clients=5", "rounds=3", "hardware.threads=1", "tracking=none", "display=none")


def experiment(tmp_path: Path, *overrides: str) -> Experiment:
    return fedrun.build_experiment(fedrun.compose([*SETTING, *overrides, f"output_dir={tmp_path}"]))


def test_a_run(tmp_path: Path, plain: None) -> None:
    pytest.importorskip("pandas")
    summary = fedrun.run(experiment(tmp_path, "model=logistic"))
    run = fedrun.load(summary["folder"])
    assert run.summary == summary and run.config["rounds"] == 3
    assert run.metrics["round"].tolist() == [0, 1, 2, 3]
    assert run.metrics["test/accuracy"].iloc[-1] == summary["final"]["test/accuracy"]
    assert repr(run) == f"LoadedRun({summary['folder']!r})" and len(repr(run.dataset)) < 500
    assert run.clients["client"].tolist() == ["0", "1", "2", "3", "4", "test"]
    # Softmax regression by hand on 64 grey values from 0 to 16.
    tensors = run.network().state_dict()
    samples, targets = run.dataset.inputs[run.dataset.train_size :], run.dataset.targets[run.dataset.train_size :]
    logits = (samples.double().flatten(1) / 16) @ tensors["head.weight"].double().T + tensors["head.bias"].double()
    predictions = run.predict(samples, batch_size=100)
    assert predictions.dtype == torch.int64 and torch.equal(predictions, logits.argmax(1))
    assert (predictions == targets).double().mean().item() == pytest.approx(summary["final"]["test/accuracy"])
    assert run.predict(samples[:0]).shape == (0,)
    with pytest.raises(fedrun.InputError, match=r"^samples of shape \[64\]; allowed: \[n, 1, 8, 8\]$"):
        run.predict(samples[0].flatten())
    with pytest.raises(fedrun.InputError, match=r"^batch_size=0: allowed: at least 1$"):
        run.predict(samples, batch_size=0)
    with pytest.raises(fedrun.InputError, match=r"has no model 1; allowed: 0 to 0$"):
        run.network(1)
    assert torch.equal(run.network(0)[-1].weight, tensors["head.weight"])
    assert run.experiment.record.hash == summary["config_hash"]
    again = fedrun.Simulation(run.experiment)
    state, _ = again.advance(again.initial())
    assert again.test(state)["test/loss"] == pytest.approx(run.metrics["test/loss"][1])


def test_the_network_of_the_users_own_class(tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_class.py").write_text(
        "import torch\n"
        "class Own(torch.nn.Module):\n"
        "    def __init__(self, spec, width):\n"
        "        super().__init__()\n"
        "        self.first, self.out = torch.nn.Linear(64, width), torch.nn.Linear(width, spec.classes)\n"
        "    def forward(self, x):\n"
        "        return self.out(self.first(x.flatten(1)).tanh())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ("model=custom", "model.target=own_class.Own", "model.arguments={width: 6}", "rounds=1")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *own))["folder"])
    network = sys.modules["own_class"].Own(run.dataset.spec, width=6)
    network.load_state_dict(run.own_network().state_dict())
    samples = run.dataset.inputs[:50]
    assert torch.equal(network(samples.float() / 16).argmax(1), run.predict(samples))
    fedruns = fedrun.load(fedrun.run(experiment(tmp_path, "model=logistic", "rounds=1"))["folder"])
    with pytest.raises(fedrun.InputError, match=r"the model is fedrun's own; network\(\) returns it$"):
        fedruns.own_network()


@pytest.mark.parametrize("clusters", [1, 2])
@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_the_concatenated_network_of_fedconcat(tmp_path: Path, plain: None, model: str, clusters: int) -> None:
    """The encoder of ``model=logistic`` has no tensors."""
    fedconcat = ("strategy=fedconcat", f"strategy.clustering.clusters={clusters}", f"model={model}", "rounds=4")
    summary = fedrun.run(experiment(tmp_path, *fedconcat))
    run = fedrun.load(summary["folder"])
    start = run.dataset.train_size
    right = run.predict(run.dataset.inputs[start:]) == run.dataset.targets[start:]
    assert right.double().mean().item() == pytest.approx(summary["final"]["test/accuracy"])


@pytest.mark.parametrize("strategy", [["strategy=fedavg"], ["strategy=fedconcat", "strategy.clustering.clusters=2"]])
def test_a_model_with_several_encoders_of_its_own(tmp_path: Path, plain: None, strategy: list[str]) -> None:
    """Their tensors have the names of FedConcat's, also where it has concatenated nothing."""
    draw = torch.Generator().manual_seed(0)
    images, classes = torch.rand(80, 1, 16, 16, generator=draw), torch.arange(80) % 2
    data = fedrun.InMemory.of((images[:60], classes[:60]), (images[60:], classes[60:]), 2)
    model = ("model=niid_simple_cnn", "model.encoders=2", "partition=iid", "rounds=2", f"output_dir={tmp_path}")
    composed = fedrun.compose([*SETTING, *model, *strategy])
    summary = fedrun.run(fedrun.build_experiment(composed, dataset=data))
    right = fedrun.load(summary["folder"], data).predict(images[60:]) == classes[60:]
    assert right.double().mean().item() == pytest.approx(summary["final"]["test/accuracy"])


def test_a_run_of_an_earlier_version(tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules have moved since, and classes have keys that they did not have."""
    (tmp_path / "narrow.py").write_text(
        "from torch import nn\n"
        "def build(spec):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, spec.classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ("model=custom", "model.target=narrow.build", "strategy=ditto", "rounds=1")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *own))["folder"])
    networks = [run.network(), run.client_network(1)]
    config = copy.deepcopy(dict(run.config))
    for key in (
        "initial",
        "aggregation",
        "compression",
        "model.lora",
        "model.freeze",
        "local.beta1",
        "dataset.arguments",
    ):
        *above, last = key.split(".")
        node = config
        for name in above:
            node = node[name]
        node.pop(last, None)
    for node in (config["model"], config["dataset"], config["strategy"]["client"]):
        node["_target_"] = f"fedrun.gone.{node['_target_'].rpartition('.')[2]}"
    earlier = LoadedRun(replace(run.run, config=config))
    for network, again in zip(networks, [earlier.network(), earlier.client_network(1)], strict=True):
        assert all(torch.equal(*pair) for pair in zip(network.parameters(), again.parameters(), strict=True))
    assert earlier.dataset.fingerprint == run.dataset.fingerprint


def test_the_class_of_an_option_placed_below_another_one_may_have_moved() -> None:
    node = {"_target_": "fedrun.gone.FedAvg", "weighting": "samples"}
    assert current(node, "strategy.server.base") == {**node, "_target_": "fedrun.strategies.fedavg.FedAvg"}


@pytest.mark.parametrize("paper", sorted({path.name.partition("-")[0] for path in PUBLISHED.iterdir()}))
def test_published_runs_of_earlier_versions(paper: str, tmp_path: Path) -> None:
    """Of each table and strategy one is an experiment of today; the newest have the hash in the folder's name, too.

    Also of the other seeds, where more than the seed differs.
    """
    configurations = set()
    for path in sorted(PUBLISHED.glob(f"{paper}-*")):
        checked = set()
        with tarfile.open(path) as archive:
            for member in archive:
                if not member.name.endswith("/.hydra/config.yaml"):
                    continue
                *above, dataset, strategy, digest, seed = member.name.removesuffix("/.hydra/config.yaml").split("/")
                if (table := "/".join(above[1:]), strategy) in checked:
                    continue
                checked.add((table, strategy))
                file = archive.extractfile(member)
                assert file is not None
                content = file.read()
                configuration = re.sub(rb"^seed: .*$", b"", content, flags=re.MULTILINE)
                if configuration in configurations:
                    continue
                configurations.add(configuration)
                (tmp_path / "config.yaml").write_bytes(content)
                config = read_yaml(tmp_path / "config.yaml")
                hash = LoadedRun(Run(Path(seed), config, dataset, strategy, (), None)).experiment.record.hash
                assert hash == digest or table not in ("fedavg/table2", "maxfl/table1/small", "fedumf/table2/small")
        assert checked


def test_deleted_files(tmp_path: Path, plain: None) -> None:
    pytest.importorskip("pandas")
    run = fedrun.load(fedrun.run(experiment(tmp_path, "model=logistic", "rounds=1"))["folder"])
    (run.folder / "model.safetensors").unlink()
    (run.folder / "clients.parquet").unlink()
    assert fedrun.load(run.folder).metrics["round"].tolist() == [0, 1]
    with pytest.raises(fedrun.InputError, match=r"clients.parquet: is missing; restore it, or start over with overw"):
        _ = run.clients
    with pytest.raises(fedrun.InputError, match=r"model.safetensors: is missing; restore it, or start over with overw"):
        run.network()


def test_one_of_several_models(tmp_path: Path, plain: None) -> None:
    summary = fedrun.run(experiment(tmp_path, "strategy=ifca", "model=logistic"))
    run = fedrun.load(summary["folder"])
    first, second = run.network(0).state_dict(), run.network(1).state_dict()
    assert first.keys() == second.keys() == {"head.weight", "head.bias"}
    assert not torch.equal(first["head.weight"], second["head.weight"])
    with pytest.raises(fedrun.InputError, match=r"has 5 models; name one: number=0 to number=4$"):
        run.network()


@pytest.mark.parametrize(
    ("strategy", "trained"), [("solo", False), ("fedproto", False), ("fednova", True), ("apfl", True)]
)
def test_no_network_where_clients_keep_their_models(tmp_path: Path, plain: None, strategy: str, trained: bool) -> None:
    run = fedrun.load(fedrun.run(experiment(tmp_path, f"strategy={strategy}", "rounds=1"))["folder"])
    if trained:
        run.network()
        return
    with pytest.raises(
        fedrun.InputError, match=f"trains no global model: the clients of strategy={strategy} keep theirs$"
    ):
        run.network()


def test_what_a_loaded_run_rejects(tmp_path: Path, plain: None) -> None:
    run = fedrun.load(fedrun.run(experiment(tmp_path, "rounds=1"))["folder"])
    wrong: Any = "a"
    with pytest.raises(fedrun.InputError, match=r"^number='a': allowed: the integer of a model, from 0; or None$"):
        run.network(wrong)
    with pytest.raises(fedrun.InputError, match=r"^samples: a list, not numbers \("):
        run.predict(["a picture"])
    with pytest.raises(fedrun.InputError, match=r"^dataset: a str; allowed: a fedrun.InMemory, or another dataset "):
        fedrun.load(run.folder, wrong)


def test_arguments_of_another_type() -> None:
    composed: Any = fedrun.compose()
    overrides: Any = ["rounds=1"]
    with pytest.raises(fedrun.InputError, match=r"^fedrun.run: Composed; allowed: what fedrun.build_experiment "):
        fedrun.run(composed)
    with pytest.raises(
        fedrun.InputError, match=r"^fedrun.Simulation: Composed; allowed: what fedrun.build_experiment "
    ):
        fedrun.Simulation(composed)
    with pytest.raises(fedrun.InputError, match=r"^fedrun.build_experiment: list; allowed: what fedrun.compose "):
        fedrun.build_experiment(overrides)
    with pytest.raises(fedrun.InputError, match=r"^dataset: a list; allowed: a fedrun.InMemory, or another dataset op"):
        fedrun.build_experiment(composed, overrides)
    with pytest.raises(fedrun.InputError, match=r"^fedrun.compose: 'rounds=1'; allowed: a list of strings, such as "):
        fedrun.compose("rounds=1")
    with pytest.raises(fedrun.InputError, match=r"^Experiment.rounds=0; allowed: an integer, at least 1$"):
        replace(fedrun.build_experiment(composed), rounds=0)


def test_predictions_for_rows_of_a_data_frame(tmp_path: Path, plain: None) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [float(row % 2) for row in range(40)], "y": [row % 2 for row in range(40)]})
    frame.to_csv(tmp_path / "table.csv", index=False)
    own = ("dataset=tabular", f"dataset.file={tmp_path}/table.csv", "partition=iid", "model=logistic", "targets=[]")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *own, "local.lr=1"))["folder"])
    assert run.predict(frame[["a"]]).tolist() == frame["y"].tolist()


def test_predictions_for_raw_rows_of_a_table(tmp_path: Path, plain: None) -> None:
    """Two classes that a feature in large units separates; the rows are given as they are in the table."""
    table = tmp_path / "table.csv"
    rows = [f"{1e4 + 100 * (row % 2) + row},{row % 2}" for row in range(40)]
    table.write_text("\n".join(["a,y", *rows]))
    own = ("dataset=tabular", f"dataset.file={table}", "partition=iid", "model=logistic", "local.lr=1", "targets=[]")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *own))["folder"])
    assert run.predict(torch.tensor([[10_010.0], [10_110.0]])).tolist() == [0, 1]


def test_predictions_for_pixels_that_are_divided_already_are_refused(tmp_path: Path, plain: None) -> None:
    """The network would see them divided by 255 twice."""
    images, classes = np.arange(240, dtype=np.uint8).reshape(60, 4), np.arange(60) % 2
    data = fedrun.InMemory.of((images, classes), (images, classes), 2)
    run = fedrun.load(fedrun.run(replace(experiment(tmp_path, "model=logistic"), dataset=data))["folder"], data)
    assert run.predict(images.astype(np.int64)).tolist() == run.predict(images).tolist()
    with pytest.raises(fedrun.InputError, match=r"^samples are float32; allowed: uint8, as the dataset's inputs"):
        run.predict(images / np.float32(255))


def test_a_run_on_data_in_memory(tmp_path: Path, plain: None) -> None:
    draw = np.random.default_rng(0)
    train, test = ((draw.normal(size=(n, 4)).astype(np.float32), draw.integers(0, 3, n)) for n in (60, 12))
    data = fedrun.InMemory.of(train, test, 3)
    summary = fedrun.run(replace(experiment(tmp_path, "model=logistic"), dataset=data))
    with pytest.raises(fedrun.InputError, match=r"was run on data in memory; pass them: fedrun.load"):
        fedrun.load(summary["folder"]).network()
    run = fedrun.load(summary["folder"], data)
    right = run.predict(torch.from_numpy(test[0])).numpy() == test[1]
    assert right.mean() == pytest.approx(summary["final"]["test/accuracy"])
    other = fedrun.load(summary["folder"], fedrun.InMemory.of((1 - train[0], train[1]), test, 3))
    with pytest.raises(fedrun.InputError, match="was run on other data"):
        other.predict(torch.from_numpy(test[0]))
    with pytest.raises(fedrun.InputError, match="was run on other data"):
        _ = other.federation
    composed = fedrun.compose([*SETTING, "model=logistic", f"output_dir={tmp_path}"])
    given = fedrun.build_experiment(composed, dataset=data)
    assert given.folder == Path(summary["folder"])
    assert given.record == replace(fedrun.build_experiment(composed), dataset=data).record
    folder = fedrun.run(replace(experiment(tmp_path, "model=logistic", "strategy=solo"), dataset=data))["folder"]
    assert len(fedrun.load(folder, data).predict(torch.from_numpy(test[0]), client=4)) == 12
    with pytest.raises(fedrun.InputError, match=r"was run on data in memory; pass them: fedrun.load"):
        fedrun.load(folder).client_network(4)


@pytest.mark.parametrize("dataset", [None, 1.5, {}])
def test_a_configuration_without_a_dataset(folders: Folders, dataset: object) -> None:
    run = fedrun.load(folders.write(0, rows(0.1, 0.8), config={**CONFIG, "dataset": dataset}))
    with pytest.raises(fedrun.InputError, match="^dataset"):
        _ = run.dataset


def test_own_images_of_another_shape_than_the_default_datasets(tmp_path: Path, plain: None) -> None:
    """The model is checked against them."""
    draw = torch.Generator().manual_seed(0)
    images, classes = torch.rand(40, 3, 28, 28, generator=draw), torch.arange(40) % 2
    data = fedrun.InMemory.of((images[:30], classes[:30]), (images[30:], classes[30:]), 2)
    composed = fedrun.compose([*SETTING, "strategy=fedper", "model=niid_simple_cnn", "rounds=1", "partition=iid",
                               f"output_dir={tmp_path}"])  # fmt: skip
    run = fedrun.load(fedrun.run(fedrun.build_experiment(composed, dataset=data))["folder"], data)
    assert run.predict(images[:3], client=1).shape == (3,)
    wrong = fedrun.compose([*SETTING, "model=mnist_2nn"])
    with pytest.raises(fedrun.InputError, match="but the dataset's samples are 3x28x28$"):
        fedrun.build_experiment(wrong, dataset=data)


def test_a_folder_that_the_system_refuses(tmp_path: Path) -> None:
    """Its name is too long; a folder without permission would be root's, too."""
    refused = tmp_path / ("x" * 300)
    message = rf"^{re.escape(str(refused))}: cannot be read \(File name too long\)$"
    with pytest.raises(fedrun.InputError, match=message):
        fedrun.load(refused)
    pytest.importorskip("pandas")
    with pytest.raises(fedrun.InputError, match=message):
        fedrun.load_all(refused)


def test_what_cannot_be_loaded(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fedrun.InputError, match=r": holds no run \(no metrics.jsonl\); fedrun.load_all reads"):
        fedrun.load(tmp_path)
    unfinished = fedrun.load(folders.write(0, rows(0.1, 0.2), complete=False))
    assert unfinished.summary is None
    with pytest.raises(fedrun.InputError, match="is not finished, so it has no model.safetensors; the same command"):
        unfinished.network()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fedrun.InputError, match=r"^pandas is not installed; pip install pandas, or fedrun's extra"):
        _ = unfinished.metrics
    with pytest.raises(fedrun.InputError, match="^pandas is not installed"):
        fedrun.load_all(folders.top)


def test_all_runs_as_a_table(folders: Folders) -> None:
    """A row per run; of the settings those that differ, and not the seed a second time."""
    for seed in (0, 1):
        folders.write(seed, rows(0.1, 0.5 + seed / 10), changes={"local.lr": 0.1})
    other = folders.write(0, rows(0.1), changes={"local.lr": 0.2}, strategy="fedprox", complete=False)
    lines = list(csv.DictReader(io.StringIO(per_run_csv(folders.found.runs))))
    common = {"name": "runs", "dataset": "digits", "test/loss": "0.5", "cost/params_up": "10", "seconds": "0.5"}
    assert {key: lines[0][key] for key in common} == common
    columns = ("strategy", "seed", "complete", "local.lr", "round", "test/accuracy", "seconds")
    assert [tuple(line[key] for key in columns) for line in lines] == [
        ("fedavg", "0", "True", "0.1", "1", "0.5", "0.5"),
        ("fedavg", "1", "True", "0.1", "1", "0.6", "0.5"),
        ("fedprox", "0", "False", "0.2", "0", "0.1", ""),
    ]
    assert lines[2]["folder"] == str(other) and "rounds" not in lines[0]
    pandas = pytest.importorskip("pandas")
    table = fedrun.load_all(folders.top)
    assert isinstance(table, pandas.DataFrame)
    assert table.groupby("local.lr")["test/accuracy"].mean().to_dict() == pytest.approx({0.1: 0.55, 0.2: 0.1})
    assert list(table.columns) == list(lines[0])


def test_strategy_and_dataset_are_the_names_of_their_options(folders: Folders) -> None:
    for strategy, owner in (("fedavg", "Strategy"), ("ifca", "ClusteredStrategy")):
        folders.write(
            0, rows(0.1), strategy=strategy, changes={"strategy._target_": f"fedrun.experiment.strategy.{owner}"}
        )
    header, *lines = csv.reader(io.StringIO(per_run_csv(folders.found.runs)))
    assert [line[header.index("strategy")] for line in lines] == ["fedavg", "ifca"]
    assert len(set(header)) == len(header)


def test_options_are_columns_under_their_groups(folders: Folders) -> None:
    """Also where another run has null instead of an option."""
    target = "fedrun.uploads.privacy.user_level.UserLevel"
    folders.write(0, rows(0.1), changes={"privacy": {"_target_": target}})
    folders.write(0, rows(0.1), changes={"privacy": None})
    lines = list(csv.DictReader(io.StringIO(per_run_csv(folders.found.runs))))
    assert [line["privacy"] for line in lines] == ["user_level", ""]
    assert "privacy._target_" not in lines[0]


def test_a_damaged_run_is_no_part_of_a_table(folders: Folders) -> None:
    pytest.importorskip("pandas")
    folder = folders.write(0, rows(0.1))
    (folder / "summary.json").write_text("{")
    (folders.write(1, rows(0.1)) / "summary.json").unlink()  # unfinished, which is no reason to raise
    with pytest.raises(fedrun.InputError, match=r"summary\.json: is damaged"):
        fedrun.load_all(folders.top)
    with pytest.raises(fedrun.InputError, match=r"summary\.json: is damaged"):
        fedrun.load(folder)


def test_runs_that_a_table_lacks_are_warned_of(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pandas")
    folders.write(0, rows(0.1))
    begun = folders.write(1, rows(), complete=False)
    assert fedrun.load_all(folders.top)["seed"].tolist() == [0]
    assert caplog.messages == [f"{begun}/metrics.jsonl: holds no evaluated round yet; the run is left out"]


def test_a_table_is_not_made_without_a_run_that_cannot_be_read(folders: Folders) -> None:
    pytest.importorskip("pandas")
    folders.write(0, rows(0.1))
    config = folders.write(1, rows(0.1)) / ".hydra" / "config.yaml"
    config.unlink()
    config.mkdir()  # cannot be read, for root neither
    with pytest.raises(fedrun.InputError, match=rf"^{re.escape(str(config))}: cannot be read \(Is a directory\)"):
        fedrun.load_all(folders.top)


@pytest.mark.parametrize("strategy", ["fedper", "apfl", "pfedme", "fedala", "pfedfda", "fedproto", "solo", "ifca"])
def test_the_networks_of_clients(tmp_path: Path, plain: None, strategy: str) -> None:
    """Each has the accuracy on its client's own test samples that the run has written for the client."""
    pytest.importorskip("pandas")
    overrides = (f"strategy={strategy}", "model=mlp", "rounds=2", "population.test_share=0.3", "clients_per_round=5")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *overrides))["folder"])
    tests = run.federation.client_test
    assert tests is not None
    clients = run.clients[run.clients["seen"]]
    for number, (name, accuracy) in enumerate(zip(clients["client"], clients["accuracy"], strict=True)):
        right = run.predict(run.dataset.inputs[tests[number]], client=name) == run.dataset.targets[tests[number]]
        assert right.double().mean().item() == pytest.approx(accuracy, abs=1e-9)
    models = [torch.nn.utils.parameters_to_vector(run.client_network(number).parameters()) for number in range(5)]
    assert len({tuple(model.tolist()) for model in models}) > 1


def test_a_client_without_a_cluster(tmp_path: Path, plain: None) -> None:
    overrides = ("strategy=ifca", "model=logistic", "rounds=1", "clients_per_round=1")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *overrides))["folder"])
    simulation = fedrun.Simulation(experiment(tmp_path, *overrides))
    (participant,) = simulation.uploads(simulation.initial()).clients.tolist()
    run.client_network(participant)
    for client in {0, 1, 2, 3, 4} - {participant}:
        with pytest.raises(
            fedrun.InputError, match=rf"^client='{client}': took part in no round, so it has no cluster"
        ):
            run.client_network(client)


def test_networks_of_clients_that_there_are_not(tmp_path: Path, plain: None) -> None:
    run = fedrun.load(fedrun.run(experiment(tmp_path, "model=logistic", "rounds=1"))["folder"])
    with pytest.raises(fedrun.InputError, match=r"no models of their own; network\(\) is the model that all use$"):
        run.client_network(0)
    run = fedrun.load(fedrun.run(experiment(tmp_path, "model=logistic", "strategy=solo", "rounds=1"))["folder"])
    with pytest.raises(fedrun.InputError, match=r"^client='5': no training client of the run; allowed: 0, 1, 2, \.\.$"):
        run.client_network(5)
    with pytest.raises(fedrun.InputError, match=r"^client=1 and number=0: allowed: one of the two$"):
        run.predict(run.dataset.inputs[:1], 0, client=1)
    (run.folder / "checkpoint.pt").unlink()
    with pytest.raises(fedrun.InputError, match=r"checkpoint.pt: is missing"):
        fedrun.load(run.folder).client_network(0)


def test_networks_of_clients_whose_states_are_in_a_file(tmp_path: Path, plain: None) -> None:
    overrides = ("model=logistic", "strategy=solo", "rounds=2", "hardware.client_memory_gb=1e-6")
    run = fedrun.load(fedrun.run(experiment(tmp_path, *overrides))["folder"])
    before = (run.folder / "clients.memory").read_bytes()
    networks = [run.client_network(client) for client in range(5)]
    assert len({tuple(network[-1].bias.tolist()) for network in networks}) == 5
    assert (run.folder / "clients.memory").read_bytes() == before
    (run.folder / "clients.memory").unlink()
    with pytest.raises(fedrun.InputError, match=r"clients.memory: cannot be read \(.*No such file.*\); restore it$"):
        fedrun.load(run.folder).client_network(0)
    assert not (run.folder / "clients.memory").exists()


def test_a_clients_network_does_not_need_the_run_that_was_the_beginning(tmp_path: Path, plain: None) -> None:
    first = Path(fedrun.run(experiment(tmp_path, "model=mlp", "rounds=1"))["folder"])
    beginning = ("initial=run", f"initial.path={first.parent}")
    run = fedrun.load(fedrun.run(experiment(tmp_path, "model=mlp", "strategy=ditto", "rounds=1", *beginning))["folder"])
    shutil.rmtree(first)
    assert run.client_network(0)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
