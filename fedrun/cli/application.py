"""The command line of ``fedrun``: compose, check, run, exit status (see :mod:`fedrun.cli.main`)."""

from __future__ import annotations

import logging
import math
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.cli.entrypoint import OneLineParser, reject
from fedrun.config.overrides import reject_contradiction, with_implied, without_implied
from fedrun.execution.ranks import SINGLE_PROCESS, RankLostError, Ranks, StoppedError, join, launched
from fedrun.system.closed_output import ignore_closed_output
from fedrun.system.errors import BAD_INPUT, Defect, InputError, RunError, defects, expected_error, one_line
from fedrun.system.lazy_import import lazy_import
from fedrun.system.signals import stop_behind
from fedrun.system.version import __version__

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedrun.config.composed import Composed
    from fedrun.data.federation import Federation
    from fedrun.experiment.experiment import Experiment
    from fedrun.experiment.studies.base import Study

FAILED = 1


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
    return _guarded(options_first(arguments))


def options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``KEY=VALUE`` and ``~KEY`` at the end: argparse accepts them in one piece only, and rejects
    ``fedrun strategy=turbosvm -m seed=0,1``. A folder stays after its option, whatever characters its name has.
    """

    def overrides(number: int) -> bool:
        names_folder = number > 0 and arguments[number - 1] in ("--config-dir", "-cd")
        override = arguments[number].startswith("~") or ("=" in arguments[number] and arguments[number][0] != "-")
        return override and not names_folder

    return [arguments[number] for number in sorted(range(len(arguments)), key=overrides)]


def _parse(arguments: Sequence[str]) -> Namespace:
    """The options of the command line for Hydra.

    Raises:
        InputError: there is an option that Hydra does not know (its own parser would print a page).
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    usage = f"--help --version --explain --why {parser.format_usage()}"  # the flags that Hydra's parser does not know
    parser.error = partial(reject, name="fedrun", usage=usage)  # type: ignore[method-assign]  # Hydra makes this parser
    options = parser.parse_args(arguments)
    for option in ("config_name", "config_path", "experimental_rerun"):
        if getattr(options, option) is not None:
            raise InputError(
                f"--{option.replace('_', '-')}: there is one configuration, conf/config.yaml; a run is repeated by its "
                "overrides, which are in its folder's .hydra/overrides.yaml"
            )
    return options


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
    from fedrun.config.options import further_folder

    folder = None if options.config_dir is None else further_folder(options.config_dir)
    if options.help:
        from fedrun.cli.help import help_text

        return help_text(folder)
    flags = [argument for argument in others if argument.startswith("-")] + ["--cfg"] * (options.cfg is not None)
    if flags:
        raise InputError(f"{flags[0]}: cannot be combined with --why or --explain")
    overrides = [word for word in others if "=" in word or word.startswith("~")]
    (options.explain or options.why).extend(word for word in others if word not in overrides)
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
        reject_contradiction(arguments)
        if (answer := _answer(arguments)) is not None:
            print(answer, flush=True)
            return 0
        from fedrun.config.composed import compose_plainly

        has_options = any(argument.startswith("-") for argument in arguments)
        if not has_options and (run := compose_plainly(arguments, single_run=True)) is not None:
            _single_job(run)
            return 0
        import hydra

        from fedrun.config.composition_errors import COMPOSITION_ERRORS, message_for
        from fedrun.config.hydra_config import register_listed_options
        from fedrun.config.options import conf_dir, further_folder
        from fedrun.sweeps.plugins import register_plugins

        sys.argv[1:] = with_implied(arguments)  # where Hydra reads them
        options = _parse(sys.argv[1:])
        register_plugins()
        register_listed_options()
        config_dir = None if options.config_dir is None else further_folder(options.config_dir)
        try:
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(job)()
        except COMPOSITION_ERRORS as error:  # also of the output folder, which Hydra creates
            raise InputError(message_for(error, arguments, config_dir)) from error
        except (LookupError, TypeError, AttributeError, AssertionError) as error:  # also Hydra's: ours are defects
            raise InputError(f"Hydra cannot use these arguments ({type(error).__name__}: {error})") from error
        return 0
    except Defect:
        raise
    except Exception as error:  # shown in full by `_failed` if it was not expected
        if isinstance(error, InputError) and stop_behind(error) is None:
            return _composition_failed(str(error))
        return _failed(SINGLE_PROCESS, error)


def _composition_failed(line: str) -> int:
    """Report once for all processes that the configuration could not be composed; return the exit status."""
    ranks = SINGLE_PROCESS
    try:
        ranks = _ranks()
        with ranks.raise_on_all():
            raise InputError(line)
    except (InputError, RunError) as error:
        return _ended(ranks, error)


def _ranks() -> Ranks:
    """The processes that torchrun has started, or this one."""
    return join() if launched() else SINGLE_PROCESS


def _ended(ranks: Ranks, error: InputError | RunError) -> int:
    """Report once for all processes why the run ends; return the exit status."""
    if ranks.is_leader:
        print(f"fedrun: {error}", file=sys.stderr, flush=True)
    if ranks.leave(str(error), isinstance(error, RankLostError)):
        print(f"fedrun: {error}", file=sys.stderr, flush=True)
    if isinstance(error, StoppedError):
        return error.status
    return BAD_INPUT if isinstance(error, InputError) else FAILED


def job(config: DictConfig) -> float | None:
    """One job of Hydra: a single run, or one run of a sweep, which returns its accuracy for a searching sweeper."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    with defects():
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return _sweep_job(config)
        try:
            composed = _composed(config)
        except InputError as error:
            sys.exit(_composition_failed(str(error)))
        _single_job(composed)
        return None


def _single_job(composed: Composed) -> None:
    """A single run: it ends with its result table, or ends the process with an exit status."""
    from fedrun.experiment.experiment import build_experiment

    ranks = SINGLE_PROCESS
    try:
        ranks = _ranks()
        with ranks.raise_on_all():
            experiment = build_experiment(composed)
            if experiment.study is not None and launched():
                raise InputError("a study is computed by one process; start it without torchrun")
        if experiment.study is not None:
            print(_run_study(experiment.study, experiment.folder, experiment.seed))
            return
        from fedrun.runs.division import divide  # loads modules that rejected configurations do not need

        processes, federation = (1, None) if launched() else divide(experiment)
    except Exception as error:  # shown in full by `_failed` if it was not expected
        sys.exit(_failed(ranks, error))
    work = partial(_run_part, experiment, federation)
    if status := work(ranks) if processes == 1 else in_processes(processes, work):
        sys.exit(status)


def in_processes(count: int, work: Callable[[Ranks], int]) -> int:
    """Compute a run in several processes forked from this one; return the exit status of this one."""
    from fedrun.execution.forked_ranks import started

    try:
        with started(count, work) as leader:
            return work(leader)
    except RunError as error:  # the others cannot be reached
        return _ended(SINGLE_PROCESS, error)


def _run_part(experiment: Experiment, federation: Federation | None, ranks: Ranks) -> int:
    """One process's part of a run; its exit status."""
    from rich.console import Console

    from fedrun.experiment.tracking import Tracking
    from fedrun.report.sweep_table import show
    from fedrun.runs.display.result_table import result_table
    from fedrun.runs.folder import finished
    from fedrun.runs.run import run

    try:
        if not ranks.is_leader:
            _log_to_screen(logging.CRITICAL)
            run(experiment, ranks=ranks, federation=federation)
            ranks.leave()
            return 0
        _log_to_screen(logging.INFO)
        if not experiment.overwrite and finished(experiment.folder):
            # a tracker that was chosen since then would otherwise stay empty without a word
            trackers = "" if type(experiment.tracking) is Tracking else "; trackers receive nothing new"
            print(
                f"{experiment.record.title}: finished earlier{trackers}; overwrite=true computes it again", flush=True
            )
        show(result_table(run(experiment, ranks=ranks, federation=federation)), Console())
        ranks.leave()
        return 0
    except Exception as error:  # shown in full by `_failed` if it was not expected
        return _failed(ranks, error)


def _failed(ranks: Ranks, error: Exception) -> int:
    """Report why the run ends; return the exit status.

    Raises:
        Defect: the error was not expected. It is shown in full, unlike errors of the composition.
        KeyboardInterrupt: a signal has stopped the run, which caused the error.
    """
    if (stop := stop_behind(error)) is not None:
        raise stop from None
    known = error if isinstance(error, (InputError, RunError)) else expected_error(error)
    if known is None:
        raise Defect from error
    return _ended(ranks, known)


def _run_study(study: Study, folder: Path, seed: int) -> str:
    """Run a study in its folder; return its result as text."""
    from fedrun.runs.folder import create, require_writable
    from fedrun.system.writing import writing

    require_writable(folder)
    create(folder)
    with writing(folder):
        return study.run(folder, seed)


def _sweep_job(config: DictConfig) -> float:
    """A run in a sweep. It never raises, but writes its outcome to the sweep's folder, so that the others continue.

    It returns its last score, such as the accuracy, on the validation samples if there are any; NaN if it failed.

    Its lines on the screen begin with its number, because lines of parallel jobs are in any order.
    """
    from hydra.core.hydra_config import HydraConfig

    from fedrun.data.evaluation_split import pooled_metric, recorded_split
    from fedrun.data.tasks.metric_names import recorded_score
    from fedrun.experiment.experiment import build_experiment
    from fedrun.runs.display import wording
    from fedrun.runs.folder import finished
    from fedrun.runs.run import run
    from fedrun.sweeps.callback import WITHOUT_VALIDATION, check_job, failed, parallel_jobs, say, searches
    from fedrun.sweeps.outcome import Outcome

    hydra = HydraConfig.get()
    overrides = without_implied(hydra.overrides.task)
    begin, together = f"== {hydra.job.num}: ", parallel_jobs(hydra.launcher)
    _log_to_screen(logging.WARNING, begin)
    try:
        experiment = build_experiment(_composed(config))
        check_job(experiment)
        if searches(hydra.sweeper) and experiment.validation.evaluation_split == "test":
            raise InputError(WITHOUT_VALIDATION)
        earlier = not experiment.overwrite and finished(experiment.folder) is not None
        say(f"{begin}{' '.join(overrides) or 'the defaults'}{': finished earlier' if earlier else ''}", sys.stdout)
        summary = run(experiment, parallel_jobs=together)
        final = summary["final"]
        score = recorded_score(final)
        last = pooled_metric(final, score)
        value, rounds = wording.value(score, last), wording.counted(summary["rounds"], "round")
        say(f"{begin}{recorded_split(final)} {wording.name(score)} {value} after {rounds}", sys.stdout)
        Outcome(overrides, summary, None, earlier).save(hydra.runtime.output_dir)
        return math.nan if last is None else float(last)
    except (InputError, RunError) as error:
        failure = str(error)
    except Exception as error:  # a defect in one job is shown in full, and must not end the others
        if (stop := stop_behind(error)) is not None:
            raise stop from None
        known = expected_error(error)
        failure = one_line(str(known or f"{type(error).__name__}: {error}"))
        if known is None:
            traceback.print_exc()
    failed(hydra.job.num, hydra.runtime.output_dir, overrides, failure)
    return math.nan


def _composed(config: DictConfig) -> Composed:
    """The configuration that Hydra composed for a job.

    Raises:
        InputError: it cannot be used, or a single run has a scale.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from fedrun.config.composed import Composed

    hydra = HydraConfig.get()
    composed = Composed.of(config, hydra)
    if hydra.mode == RunMode.MULTIRUN:
        return replace(composed, sweep=Path(hydra.sweep.dir).name)
    if (scale := composed.config["scale"]) != "full":
        raise InputError(f"scale={scale}: allowed in sweeps, such as those of experiments, and not in a single run")
    return composed


class OneLine(logging.Formatter):
    """Formats every message as one line, also warnings of other libraries."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return one_line(super().formatMessage(record))


def _log_to_screen(level: int, begin: str = "") -> None:
    """Show fedrun's messages, and all packages' warnings, as plain lines, at this level and above."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setLevel(level)
    handler.setFormatter(OneLine(f"{begin}%(message)s"))
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("fedrun").setLevel(logging.DEBUG)  # for the run's log file
