"""The text of ``fedrun --help``: examples, and every config group with its options. It is printed without Hydra."""

from __future__ import annotations

from pathlib import Path

from fedrun.config.options import HYDRA_GROUPS, files_in, groups, option_folders

TEXT = """\
fedrun runs federated-learning experiments.

  fedrun                                              the default: scikit-learn's digits, Dirichlet split, FedAvg
  fedrun strategy=turbosvm dataset=femnist            a paper's setting with its hyper-parameters
  fedrun strategy=turbosvm strategy/client=fedprox    TurboSVM-FL on the server, FedProx on the clients
  fedrun strategy=turbosvm strategy/server@strategy.server.base=fedadam     TurboSVM-FL on top of FedAdam
  fedrun -m seed=0,1,2,3,4 strategy=fedavg,turbosvm   a sweep: parallel jobs, and a table of mean ± std
  fedrun dataset=mnist partition=shards model=mnist_2nn local.lr=0.05 rounds=500 targets=[0.97]
  fedrun local.epochs=null local.steps=20             local steps instead of epochs

  fedrun strategy=turbosvm --cfg job                  show the composed configuration with every key, and stop
  fedrun --explain local.lr                           what a key means, what it allows, and its default
  fedrun dataset=mnist --why local.lr                 which file or argument sets a key
  fedrun --version                                    the installed version

The same command continues an interrupted run, and shows a finished one; overwrite=true computes it again.

Groups and their options (GROUP=OPTION):

{groups}

Everything else is a key (KEY=VALUE), see --cfg job and --explain KEY.
Hydra composes the configuration: fedrun --hydra-help"""


def help_text(config_dir: Path | None) -> str:
    """The whole text.

    Args:
        config_dir: folder of further options.
    """
    folders = option_folders(config_dir)
    options = {group: sorted(files_in(group, folders)) for group in groups(folders)}
    options |= {group: sorted({*own, *files_in(group, folders)}) for group, own in HYDRA_GROUPS.items()}
    return TEXT.format(groups="\n".join(f"{group}: {', '.join(names)}" for group, names in options.items() if names))
