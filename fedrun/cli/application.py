"""The command line of ``fedrun``: answer a question, start a run, or start Hydra (see :mod:`fedrun.cli.main`)."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from fedrun.cli.entrypoint import OneLineParser, reject
from fedrun.cli.single_run import composition_failed, failed, single_run
from fedrun.config.allowed_values import in_message
from fedrun.config.options import conf_dir, further_folder, groups, with_config_dir
from fedrun.config.overrides import (
    key_of,
    reject_contradiction,
    reject_folders_of_hydra,
    reject_settings_of_sweeps,
    set_in_each_job,
    typed,
    with_implied,
)
from fedrun.execution.launched_ranks import launched
from fedrun.execution.ranks import SINGLE_PROCESS
from fedrun.system.closed_output import ignore_closed_output
from fedrun.system.errors import FAILED, Defect, InputError, defects, show_defect
from fedrun.system.lazy_import import lazy_import
from fedrun.system.signals import stop_behind
from fedrun.system.user_path import require_current_folder
from fedrun.system.version import __version__
from fedrun.system.yaml_file import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig

    from fedrun.config.composed import Composed


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit status.

    Raises:
        KeyboardInterrupt: a signal has stopped it.
    """
    lazy_import("torch")
    if launched():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost connection is one line, not forty
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them over many lines
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ± must not end a run
    ignore_closed_output()
    try:
        return _guarded(options_first(arguments))
    except Defect as defect:
        show_defect(defect.__cause__ or defect)
        return FAILED


FOLDER_FLAGS = ("--config-dir", "-cd")
"""The flags of a folder of further options."""


def options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``KEY=VALUE`` and ``~KEY`` at the end: argparse accepts them in one piece only, and rejects
    ``fedrun strategy=turbosvm -m seed=0,1``. A folder stays after its option, whatever characters its name has.
    """

    def overrides(number: int) -> bool:
        names_folder = number > 0 and arguments[number - 1] in FOLDER_FLAGS
        override = arguments[number].startswith("~") or ("=" in arguments[number] and arguments[number][0] != "-")
        return override and not names_folder

    return [arguments[number] for number in sorted(range(len(arguments)), key=overrides)]


def with_folder(word: str, typed: str, folder: Path) -> str:
    """An argument of the command line with the folder of options for its name as typed, alone or after a flag."""
    if word == typed:
        return str(folder)
    flag = word.removesuffix(typed)
    return f"{flag}{folder}" if flag != word and flag.startswith("-") and flag.endswith("=") else word


def reject_repeated_folder(arguments: Sequence[str]) -> None:
    """Reject a second folder of options, which would silently replace the first.

    Raises:
        InputError: there is one.
    """
    if sum(argument.partition("=")[0] in FOLDER_FLAGS for argument in arguments) > 1:
        raise InputError("--config-dir: is given twice; allowed: one folder, with the options of both")


class HydraParser(OneLineParser):
    """A parser of Hydra's options, which answers one named like a key, as in ``--rounds 5``, with how a key is set."""

    def error(self, message: str) -> NoReturn:
        named = re.search(r"(?<!\S)--([\w.-]+)", message)
        key = named[1].replace("-", "_") if named else ""
        if key.partition(".")[0] in {*read_yaml(conf_dir() / "config.yaml"), *groups([conf_dir()])}:
            raise InputError(f"{message}; did you mean {key}=VALUE? Keys and groups are written without dashes")
        reject(message, self.prog, f"--explain --why {self.format_usage()}")  # fedrun's own, which Hydra does not know


def _parse(arguments: Sequence[str]) -> Namespace:
    """The options of the command line for Hydra.

    Raises:
        InputError: there is an option that Hydra does not know (its own parser would print a page).
    """
    from hydra._internal.utils import get_args_parser

    options = HydraParser(prog="fedrun", parents=[get_args_parser()], add_help=False).parse_args(arguments)
    for option in ("config_name", "config_path", "experimental_rerun"):
        if getattr(options, option) is not None:
            raise InputError(
                f"--{option.replace('_', '-')}: there is one configuration, conf/config.yaml; a run is repeated by its "
                "overrides, which are in its folder's .hydra/overrides.yaml"
            )
    return options


def _require_part(options: Namespace, folder: Path | None) -> None:
    """Reject a part of the configuration that cannot be printed; Hydra would end with the status of a failed run.

    Raises:
        InputError: what ``--cfg`` prints has no such key, or it is null.
    """
    from omegaconf import OmegaConf

    from fedrun.config.hydra_config import hydra_config

    key = options.package
    other = "job" if key.partition(".")[0] == "hydra" else "hydra"  # which lacks it
    if options.cfg == other or OmegaConf.select(hydra_config(options.overrides, folder), key) is None:
        raise InputError(f"--package {key}: no such key, or null; fedrun --cfg {options.cfg} shows all keys")


def _answer(arguments: Sequence[str]) -> str | None:
    """The text for a command line that only prints something, such as ``--help``; None for all others.

    Raises:
        InputError: there is no such key or folder, or the configuration cannot be composed.
    """
    parser = OneLineParser(prog="fedrun", add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--explain", metavar="KEY", action="append", default=[])
    parser.add_argument("--why", metavar="KEY", action="append", default=[])
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c")  # without it, argparse would take -c for -cd
    options, others = parser.parse_known_args(arguments)
    if options.version:  # Hydra would print its own
        return f"fedrun {__version__}"
    if not (options.help or options.explain or options.why):
        return None
    folder = None if options.config_dir is None else further_folder(options.config_dir)
    if options.help:
        from fedrun.cli.help import help_text

        return help_text(folder)
    flags = [argument for argument in others if argument.startswith("-")] + ["--cfg"] * (options.cfg is not None)
    if flags:
        raise InputError(f"{flags[0]}: cannot be combined with --why or --explain")
    overrides = [word for word in others if "=" in word or word.startswith("~")]
    (options.explain or options.why).extend(word for word in others if word not in overrides)
    for flag, keys in {"--explain": options.explain, "--why": options.why}.items():
        if assigned := next((key for key in keys if "=" in key), ""):
            alone = f"{flag} {assigned.partition('=')[0]}"
            raise InputError(f"{flag} {in_message(assigned)}: allowed: a key or a group without a value: {alone}")
    if options.multirun:
        overrides.append("hydra.mode=MULTIRUN")  # as Hydra does
    answers = []
    if options.explain:
        from fedrun.config.key_reference import explain_key
        from fedrun.experiment.experiment import Experiment

        answers += [explain_key(key, Experiment, folder) for key in options.explain]
    if options.why:
        from fedrun.config.composition_errors import composing
        from fedrun.config.sources import why

        with composing(overrides, folder):
            answers += [why(key, overrides, folder) for key in options.why]
    return "\n\n".join(answers)


def _guarded(arguments: Sequence[str]) -> int:
    """Answer or run, and turn expected errors into one line and an exit status.

    Hydra's application is started only if it is needed: for sweeps, for its own options and keys, and for
    configurations that only Hydra can compose or reject.
    """
    try:
        require_current_folder()
        reject_contradiction(arguments)
        reject_folders_of_hydra(arguments)
        reject_repeated_folder(arguments)
        if (answer := _answer(arguments)) is not None:
            print(answer, flush=True)
            return 0
        from fedrun.config.composed import compose_plainly

        has_options = any(argument.startswith("-") for argument in arguments)
        if not has_options and (composed := compose_plainly(arguments, single_run=True)) is not None:
            reject_settings_of_sweeps(arguments)
            single_run(composed)
            return 0
        import hydra

        from fedrun.config.composition_errors import composing
        from fedrun.config.hydra_config import register_listed_options
        from fedrun.sweeps.plugins import register_plugins

        with composing(arguments):
            sys.argv[1:] = set_in_each_job(with_implied(arguments))  # where Hydra reads them
        options = _parse(sys.argv[1:])
        register_plugins()
        register_listed_options()
        config_dir = None
        if options.config_dir is not None:
            config_dir = further_folder(options.config_dir)
            if (typed := str(options.config_dir)).startswith("~"):  # Hydra does not expand it
                sys.argv[1:] = [with_folder(word, typed, config_dir) for word in sys.argv[1:]]
        try:
            with with_config_dir(config_dir), composing(arguments):  # also errors of the folder that Hydra creates
                if options.cfg and options.package not in (None, "_global_"):
                    _require_part(options, config_dir)
                hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(job)()
        except (LookupError, TypeError, AttributeError, AssertionError) as error:  # also Hydra's: ours are defects
            raise InputError(f"Hydra cannot use these arguments ({type(error).__name__}: {error})") from error
        return 0
    except Defect:
        raise
    except Exception as error:  # shown in full by `failed` if it was not expected
        if isinstance(error, InputError) and stop_behind(error) is None:
            return composition_failed(str(error))
        return failed(SINGLE_PROCESS, error)


def job(config: DictConfig) -> float | None:
    """One job of Hydra: a single run, or one run of a sweep, which returns its accuracy for a searching sweeper."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    with defects():
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            from fedrun.cli.sweep_job import sweep_job

            return sweep_job(config)
        try:
            composed = _composed(config)
        except InputError as error:
            sys.exit(composition_failed(str(error)))
        single_run(composed)
        return None


def _composed(config: DictConfig) -> Composed:
    """The configuration that Hydra composed for a single run.

    Raises:
        InputError: it cannot be used, or has a scale, or a sweep without ``hydra.mode``.
    """
    from hydra.core.hydra_config import HydraConfig

    from fedrun.config.composed import Composed
    from fedrun.config.sweeper import sweeper_settings

    hydra = HydraConfig.get()
    reject_settings_of_sweeps(typed(hydra.overrides.hydra))
    composed = Composed.of(config, hydra)
    if (scale := composed.config["scale"]) != "full":
        raise InputError(f"scale={scale}: allowed in sweeps, such as those of experiments, and not in a single run")
    if not _chooses_mode(typed(hydra.overrides.hydra)) and sweeper_settings(hydra).sets_values("full"):
        experiment = composed.choices.get("experiment")
        place = "hydra.sweeper" if experiment is None else f"experiment={experiment}"
        raise InputError(
            f"{place}: has a sweep; set hydra.mode: MULTIRUN in its file, or use -m; hydra.mode=RUN makes a single run"
        )
    return composed


def _chooses_mode(overrides: Sequence[str]) -> bool:
    """Whether a file or an argument sets ``hydra.mode``. If none does, Hydra adds an override that the command line
    lacks.

    Args:
        overrides: those of Hydra's part of the configuration.
    """
    key = "hydra.mode"
    return key in map(key_of, sys.argv[1:]) or key not in map(key_of, overrides)
