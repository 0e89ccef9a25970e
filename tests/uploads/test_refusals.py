"""Privacy, compression, secure sums and attacks that contradict each other, the strategy or the data."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.fedavg import FedAvg
from fedrun.system.errors import InputError

from ..helpers.quadratic_clients import SGD
from ..helpers.small_networks import batch_norm, mlp
from ..helpers.upload_rounds import compression, private

VOTE = compression("sign", rule="vote", memory="none")
LEVELS = ("local", "sample_level", "user_level")


@dataclass(frozen=True)
class Counting(ClientStrategy):
    """Sends two numbers besides the model."""

    sends: ClassVar[frozenset[str]] = frozenset({"model", "counts"})


@dataclass(frozen=True)
class Counts(FedAvg):
    """Sends them back."""

    sends: ClassVar[frozenset[str]] = frozenset({"model", "counts"})

    def broadcast(self, state):
        return {"model": state.model, "counts": torch.zeros(2)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"privacy": private(), "strategy": ("krum",)},
            r"^privacy=user_level with strategy/client=sgd, strategy/server=krum: .* single client's model.*fedavg",
        ),
        (
            {"privacy": private(), "strategy": ("fednova",)},
            r"^privacy=user_level with .*server=fednova: .*client's 'direction' \(it counts as a number, because the "
            r"server broadcasts no vector of this name\), without noise; allowed: ",
        ),
        (
            {"privacy": private(), "compression": compression("topk")},
            r"compression.memory=client: .*compression.memory=none$",
        ),
        ({"privacy": private(epsilon=2.0)}, r"^privacy.noise_multiplier, privacy.epsilon: 0 and 2 are both given"),
        ({"privacy": private(noise_multiplier=None)}, r"^privacy.noise_multiplier, privacy.epsilon: neither is given"),
        ({"privacy": private(noise_cohort=3)}, r"^privacy.noise_cohort=3 with privacy.population=null: .*neither$"),
        (
            {"secure_sum": option("secure_sum", "fixed_point"), "strategy": ("median",)},
            r"^secure_sum=fixed_point with .*server=median: ",
        ),
        (
            {"secure_sum": option("secure_sum", "fixed_point"), "compression": compression("sign")},
            r"^secure_sum=fixed_point with compression=sign",
        ),
        (
            {"secure_sum": option("secure_sum", "fixed_point"), "privacy": private(max_weight=2.5)},
            r"^privacy.max_weight=2.5 with secure_sum=fixed_point: .*; allowed: whole numbers, or null$",
        ),
        ({"compression": compression("sign", rule="vote")}, r"^compression.rule=vote with compression.memory=client"),
        (
            {"compression": compression("sign", rule="vote", memory="none", skip="head")},
            r"^compression.rule=vote with compression.skip=head: .* only counts votes; allowed: compression.skip=none$",
        ),
        (
            {"compression": compression("quantize", memory="client")},
            r"^compression.memory=client with compression=quantize, which is unbiased: .*; allowed: none, or a biased ",
        ),
        (
            {"compression": compression("randk", memory="client")},
            r"^compression.memory=client with compression=randk, .*; allowed: none, .* compression.scaled=false$",
        ),
        (
            {"compression": compression("topk"), "strategy": ("solo", "solo")},
            r"^compression=topk: .*client=solo sends nothing",
        ),
        (
            {"privacy": private(), "strategy": ("fedexp",)},
            r"^privacy=user_level with .*server=fedexp: the server would see how far every single client has moved",
        ),
        (
            {"secure_sum": option("secure_sum", "fixed_point"), "strategy": ("fedexp",)},
            r"^secure_sum=fixed_point with .*server=fedexp: the server would see how far every single client",
        ),
        (
            {"compression": VOTE, "strategy": ("fedexp",)},
            r"^compression.rule=vote with .* uses how far every single client has moved the model; allowed: ",
        ),
        ({"attack": option("attack", "alie"), "privacy": private()}, r"^attack=alie forges uploads"),
        (
            {"compression": VOTE, "strategy": ("krum",)},
            r"^compression.rule=vote with .* uses every single client's model;",
        ),
        (
            {"compression": VOTE, "strategy": ("scaffold",)},
            r"^compression.rule=vote with .* uses 'control', whose size",
        ),
        (
            {"compression": VOTE, "strategy": ("fedadam",)},
            r"^compression.rule=vote with strategy/server=fedadam: .*fedavg$",
        ),
        ({"compression": VOTE, "attack": option("attack", "alie")}, r"^compression.rule=vote with attack=alie"),
        ({"compression": VOTE, "privacy": private()}, r"^privacy=user_level with compression.rule=vote: "),
    ],
)
def test_what_is_refused(make_experiment, changes, message):
    if "strategy" in changes:
        name = changes["strategy"][0]
        client = name if name in ("fednova", "scaffold", "solo") else "sgd"
        changes = {
            **changes,
            "strategy": Strategy(client=option("strategy/client", client), server=option("strategy/server", name)),
        }
    with pytest.raises(InputError, match=message):
        make_experiment(**changes)


def test_biased_compressors_have_a_memory(make_experiment):
    for how in (compression("topk"), compression("randk", scaled=False), compression("quantize", rounding="nearest")):
        make_experiment(compression=replace(how, memory="client"))


def test_several_models_are_broadcast_in_full(make_experiment):
    """Clusters, whose clients compare models."""
    half, clusters = compression("none", down="half"), build_experiment(compose(["strategy=ifca"]).config).strategy
    with pytest.raises(InputError, match=r"^compression.down=half with strategy/clustering=ifca, .*allowed: none$"):
        make_experiment(compression=half, strategy=clusters)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("fesem", "every single client's model"),
        ("fedconcat_id", "every single client's model"),
        ("fedconcat", "every single client's numbers of samples per class"),
        ("fedsoft", "the part of every single client in each model"),
    ],
)
def test_secure_sums_hide_what_clusters_are_made_of(make_experiment, name, seen):
    clusters = build_experiment(compose([f"strategy={name}"]).config).strategy
    with pytest.raises(InputError, match=rf"^secure_sum=fixed_point with .*: the server would see {seen}; allowed: "):
        make_experiment(secure_sum=option("secure_sum", "fixed_point"), strategy=clusters)
    chosen_by_clients = build_experiment(compose(["strategy=ifca"]).config).strategy
    make_experiment(secure_sum=option("secure_sum", "fixed_point"), strategy=chosen_by_clients)


def test_clients_of_several_models_are_not_counted_as_whole_ones(make_experiment):
    """FedSoft's clients weigh a fraction in each model."""
    for server in ("median", "geometric_median", "turbosvm"):
        with pytest.raises(InputError, match=r"^strategy/server=\w+ uses single models, .*fedsoft.* such as fedavg$"):
            build_experiment(compose(["strategy=fedsoft", f"strategy/server={server}"]).config)
    for moved in ("qffl", "fednova"):  # x_nearest - y_k, which is no displacement of the other centres
        with pytest.raises(InputError, match=rf"^strategy/client={moved} sends how far .*fedsoft adds it to several"):
            build_experiment(compose(["strategy=fedsoft", f"strategy/client={moved}", f"strategy/server={moved}"]))
    fedsoft = build_experiment(compose(["strategy=fedsoft"]).config).strategy
    with pytest.raises(InputError, match=r"^compression.rule=vote with .* uses fractions of votes, "):
        make_experiment(strategy=fedsoft, compression=VOTE)


@pytest.mark.parametrize("change", ["privacy", "compression", "secure_sum"])
def test_pooled_data_are_not_sent(change):
    options = {
        "privacy": "privacy=local",
        "compression": "compression.down=half",
        "secure_sum": "secure_sum=fixed_point",
    }
    noise = ["privacy.noise_multiplier=1"] if change == "privacy" else []
    with pytest.raises(
        InputError, match=rf"^{change}\S+ with population.pooled=true: no client sends .*; choose none$"
    ):
        build_experiment(compose(["strategy=centralized", options[change], *noise]).config)


@pytest.mark.parametrize(
    "overrides",
    [
        ["compression=topk"],
        ["compression.down=half"],
        ["attack=sign_flip", "attack.share=0.5"],
        ["attack=gaussian", "attack.share=0.5"],
    ],
)
def test_parameters_that_stay_with_the_clients(overrides):
    """FedProto's clients send prototypes only: compressors and forged parameters would change nothing."""
    common = ["strategy=fedproto", "hardware.threads=1", "tracking=none"]
    with pytest.raises(InputError, match=r"^(compression|attack)\S+: .*=fedproto keeps all parameters on the clie"):
        Simulation(build_experiment(compose([*common, *overrides]).config))
    Simulation(build_experiment(compose([*common, "attack=label_flip", "attack.share=0.5"]).config))


@pytest.mark.parametrize("name", ["alie", "ipm", "min_max"])
def test_attackers_without_honest_clients(make_experiment, name):
    """Of six clients a share of 0.92 is all, and one client per round is honest or not, also where that is a draw."""
    with pytest.raises(InputError, match=rf"^attack.share=0.92 with attack={name}, .*all 6 .*: at most 0.833333$"):
        Simulation(make_experiment(network=mlp, attack=option("attack", name, share=0.92)))
    attack = option("attack", name, share=0.833333)
    with pytest.raises(InputError, match=rf"^clients_per_round=0.1 with attack={name}, .*; allowed: at least 2, "):
        Simulation(make_experiment(network=mlp, attack=attack, clients_per_round=0.1))
    drawn = {"network": mlp, "attack": attack, "participation": option("participation", "bernoulli")}
    with pytest.raises(InputError, match=rf"^clients_per_round=2 with attack={name}, .*: a round may have one "):
        Simulation(make_experiment(**drawn, clients_per_round=2))
    Simulation(make_experiment(**drawn, clients_per_round=6))
    Simulation(make_experiment(network=mlp, attack=attack, clients_per_round=2))
    Simulation(make_experiment(network=mlp, attack=option("attack", name, share=0.0), clients_per_round=1))


def test_a_last_phase_with_larger_rounds_has_both_kinds(make_experiment):
    """FedConcat's classifier has rounds of its own, also with one client per round before."""
    clusters = build_experiment(compose(["strategy=fedconcat"]).config).strategy
    Simulation(
        make_experiment(strategy=clusters, rounds=9, attack=option("attack", "ipm", share=0.5), clients_per_round=1)
    )


def normalised(spec):
    """BatchNorm without running statistics."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6, track_running_stats=False))
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


NOISED = private("sample_level", noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ("moon", "use embeddings"),
        ("fedala", "use batch_gradient"),
        ("fedntd", "compare with other models"),
        ("fedsam", "process each batch several times"),
        ("fedumf", "train while they are idle"),
    ],
)
def test_strategies_that_use_samples_besides_noised_gradients(make_experiment, chosen, reason):
    strategy = build_experiment(compose([f"strategy={chosen}"]).config).strategy
    with pytest.raises(InputError, match=rf"^privacy=sample_level with .*: clients would {reason}, without noise; "):
        make_experiment(strategy=strategy, privacy=NOISED)


@pytest.mark.parametrize("chosen", ["turbosvm", "fedaws", "fednova", "fedexp", "fedcm", "krum", "median"])
def test_strategies_that_process_noised_models(make_experiment, chosen):
    """What is computed from them is private."""
    strategy = build_experiment(compose([f"strategy={chosen}"]).config).strategy
    simulation = Simulation(make_experiment(strategy=strategy, network=mlp, clients_per_round=6, privacy=NOISED))
    state, _ = simulation.advance(simulation.initial())
    assert state.server.model.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        *(({"privacy": private(level, noise_multiplier=1.0)}, f"privacy={level}") for level in LEVELS),
        *(({"compression": compression(name)}, f"compression={name}") for name in ("topk", "randk", "sign")),
        ({"compression": compression("none", down="half")}, "compression.down=half"),
        ({"secure_sum": option("secure_sum", "fixed_point")}, "secure_sum=fixed_point"),
        *(({"attack": option("attack", name, share=0.2)}, f"attack={name}") for name in ("sign_flip", "gaussian")),
    ],
)
def test_what_would_arrive_beyond_a_clients_rank(make_experiment, changes, named):
    """Rows of A and columns of B that a client does not have are zero, and not sent: their displacement is -x, of which
    these transforms would deliver a part, or noise; these attackers would send it reversed, or with noise.
    """
    pair = Strategy(client=option("strategy/client", "lora_ranks", ranks=(1, 2)), server=FedAvg(weighting="samples"))
    with pytest.raises(InputError, match=rf"^{named} with strategy/client=lora_ranks: .* as zero; allowed: client str"):
        make_experiment(strategy=pair, **changes)


def test_errors_of_a_matrix_that_begins_anew(make_experiment):
    pair = Strategy(client=option("strategy/client", "sgd"), server=option("strategy/server", "flora"))
    make_experiment(strategy=pair, compression=compression("topk", memory="none"))
    with pytest.raises(InputError, match=r"^compression.memory=client with strategy/server=flora, whose A begins anew"):
        make_experiment(strategy=pair, compression=compression("topk", memory="client"))


def test_one_step_on_all_samples_is_not_on_a_part():
    settings = ["strategy=fedsgd", "local.batch_size=null", "privacy=sample_level", "privacy.noise_multiplier=1"]
    with pytest.raises(InputError, match=r"^privacy.sample_share=0.1 with strategy/client=fedsgd, .*; allowed: 1, or "):
        build_experiment(compose(settings).config)
    build_experiment(compose([*settings, "privacy.sample_share=1"]).config)


def test_a_server_that_chooses_the_steps(make_experiment):
    @dataclass(frozen=True)
    class Hurry(FedAvg):
        def steps(self, state, cohort, usual, round):
            return 2 * usual

    with pytest.raises(InputError, match=r"clients would make as many steps as the server requests, without noise"):
        make_experiment(strategy=Strategy(client=SGD, server=Hurry(weighting="samples")), privacy=NOISED)


def test_a_bound_that_jumps():
    """Its logarithm moves by at most 10 per unclipped share; more would overflow in a few rounds."""
    settings = ["privacy=user_level_adaptive", "privacy.noise_multiplier=1", "privacy.count_noise=1"]
    with pytest.raises(InputError, match=r"^privacy.lr=300: allowed: .* at most 10$"):
        build_experiment(compose([*settings, "privacy.lr=300"]).config)
    build_experiment(compose([*settings, "privacy.lr=10"]).config)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ({"max_gradient_norm": 1.0}, r"^local.max_gradient_norm=1 with privacy=sample_level.*allowed: null$"),
        ({"precision": "bfloat16"}, r"^local.precision=bfloat16 with privacy=sample_level: allowed: float32$"),
    ],
)
def test_local_training_that_cannot_be_noised(make_experiment, local, message):
    with pytest.raises(InputError, match=message):
        make_experiment(local=local, privacy=NOISED)


def test_what_the_data_refuse(make_experiment):
    for privacy in (private(), NOISED):
        with pytest.raises(InputError, match=r"^privacy=\w+_level with model=.*BatchNorm.*GroupNorm$"):
            Simulation(make_experiment(network=batch_norm, privacy=privacy))
    with pytest.raises(InputError, match=r"^privacy=sample_level with model=.*, which has BatchNorm1d layers, "):
        Simulation(make_experiment(network=normalised, privacy=NOISED))
    sums = option("secure_sum", "fixed_point")
    with pytest.raises(InputError, match=r"^secure_sum=fixed_point with model=.*BatchNorm.* float32, .*GroupNorm$"):
        Simulation(make_experiment(network=batch_norm, secure_sum=sums))
    fedbn = build_experiment(compose(["strategy=fedbn"]).config).strategy
    Simulation(make_experiment(network=batch_norm, strategy=fedbn, secure_sum=sums))
    make_experiment(secure_sum=sums, privacy=private(max_weight=3.0))
    pair = Strategy(client=Counting(), server=Counts(weighting="samples"))
    with pytest.raises(InputError, match=r"^privacy=user_level: strategy.client=Counting sends 'counts', whose length"):
        Simulation(make_experiment(network=mlp, strategy=pair, privacy=private()))
    with pytest.raises(
        InputError, match=r"^secure_sum=fixed_point: .*=Counting sends 'counts', .* would not be rounded;"
    ):
        Simulation(make_experiment(network=mlp, strategy=pair, secure_sum=option("secure_sum", "fixed_point")))
    sums = option("secure_sum", "fixed_point", levels=2**30)  # fits two clients, not all six
    with pytest.raises(InputError, match=r"^secure_sum.bits=32 .* up to 6, "):
        Simulation(make_experiment(network=mlp, clients_per_round=2, privacy=private(), secure_sum=sums))
    # a round of two clients has up to 20 + 12 samples, 3200 < 2^12; one of all six has 60
    sums = option("secure_sum", "fixed_point", bits=12, levels=100)
    Simulation(make_experiment(network=mlp, clients_per_round=2, secure_sum=sums))
    anyone = option("participation", "bernoulli")
    with pytest.raises(InputError, match=r"^secure_sum.bits=12 .* up to 60, .* at most 68 levels$"):
        Simulation(make_experiment(network=mlp, clients_per_round=2, participation=anyone, secure_sum=sums))
    with pytest.raises(InputError, match=r"^secure_sum.bits=16 with secure_sum.levels=1048576"):
        Simulation(make_experiment(network=mlp, secure_sum=option("secure_sum", "fixed_point", bits=16)))
    with pytest.raises(InputError, match=r"^privacy.count_noise=0.15 with a noise multiplier of 1: .*above 0.5$"):
        Simulation(
            make_experiment(
                network=mlp, clients_per_round=3, privacy=private("user_level_adaptive", noise_multiplier=1.0)
            )
        )
