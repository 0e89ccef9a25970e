"""The choices of a run that its command does not name: model, partition, executor, machine, and what is tested."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fedrun.config.composed import HPARAMS, STRATEGY, STRATEGY_HPARAMS
from fedrun.config.defaults_entry import SELF, entry_of
from fedrun.config.options import content, option_files
from fedrun.execution.hardware import gpu_name
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.state import State
from fedrun.runs.display.wording import counted
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.phase import Phase
from fedrun.system.cores import cores
from fedrun.uploads.privacy.sample_level import SampleLevel


def decisions(experiment: Experiment, simulation: Simulation, initial: State) -> Mapping[str, str]:
    """A few words on each choice, in the order in which they are shown.

    Args:
        experiment: the run's experiment.
        simulation: the experiment's simulation.
        initial: the simulation's initial state.
    """
    phase, clients = simulation.phase(initial), len(simulation.federation.train)
    varies = experiment.participation_rule.varies
    cohort = f"{'about ' if varies else ''}{phase.cohort_size:,} of {clients:,} clients"
    choices = {
        "model": f"{named_choice(experiment, 'model')}, {phase.network.layout.size:,} parameters",
        "initial": experiment.initial.described(experiment.seed),
        "partition": "; ".join(filter(None, (named_choice(experiment, "partition"), simulation.federation.note))),
        "hparams": experiment.record.hparams or _without_hparams(experiment),
        "cohort": experiment.aggregation.described(cohort) + (", drawn independently" if varies else ""),
        "batches": _noised_batches(experiment, phase),
        "machine": _machine(simulation, initial),
        "tested": simulation.evaluator(initial).tested,
        "accuracy": _unrecorded_accuracy(experiment, phase),
    }
    return {name: words for name, words in choices.items() if words}


def _noised_batches(experiment: Experiment, phase: Phase) -> str:
    """How the batches of private training are drawn; empty for other training."""
    privacy = experiment.privacy
    if not isinstance(privacy, SampleLevel):
        return ""
    drawn = f"each sample with probability {privacy.sample_share:g} per step"
    return f"{drawn}, {counted(privacy.steps(phase.local), 'step')}; local.batch_size is not used"


def _machine(simulation: Simulation, initial: State) -> str:
    """The processes, their threads or GPUs, and the executor."""
    count, device = simulation.ranks.count, simulation.device
    computing = gpu_name(device) or counted(torch.get_num_threads(), "thread")
    processes = f"1 process with {computing}" if count == 1 else f"{count} processes with {computing} each"
    parts = [f"{processes}, {counted(cores(), 'core')}", f"executor {simulation.round_runner(initial).executor.name}"]
    if device.type == "cpu" and torch.cuda.device_count():
        parts.append("hardware=gpu would use this machine's GPU")
    return "; ".join(parts)


def _unrecorded_accuracy(experiment: Experiment, phase: Phase) -> str:
    """The accuracies that should be reported and are not recorded; empty if there are none."""
    if phase.samples.task.score != "accuracy" or phase.clustering.several:
        return ""
    return experiment.evaluation.unrecorded(phase.client, phase.federation.client_test is not None)


def named_choice(experiment: Experiment, group: str) -> str:
    """The chosen option of a group and, if nobody named it, the option of another group that has chosen it.

    An object that replaced the option's has the name of its class.
    """
    origin, changed = experiment.origin, type(getattr(experiment, group)).__name__
    option = origin.choices.get(group)
    if option is None or f"{group}={changed}" in experiment.record.overrides[len(origin.overrides) :]:
        return changed
    if any(override.startswith((f"{group}=", "experiment=")) for override in origin.overrides):
        return option
    for key in (STRATEGY_HPARAMS, HPARAMS, "dataset", STRATEGY):  # of several the last in config.yaml takes effect
        other, name = key.partition("@")[0], origin.choices.get(key)
        path = option_files(other).get(str(name))
        if path is None and other != HPARAMS:
            return option  # of a folder of options that a library's call named
        if path is not None:
            defaults = content(other, str(name), path).get("defaults", ())
            if any(entry.group == group for line in defaults if (entry := entry_of(line, other)) not in (None, SELF)):
                return f"{option} ({'the default of ' if other == 'dataset' else 'of '}{other}={name})"
    return f"{option} (the default)"


def _without_hparams(experiment: Experiment) -> str:
    """Why a run has no published values."""
    left_out = any(override.partition("=")[0] == "~hparams" for override in experiment.record.overrides)
    return "none (~hparams)" if left_out else "none published for this dataset"
