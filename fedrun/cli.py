"""The command line: compose, check, run, exit code.

Exit status: 0 done; 1 a run could not go on, or a job of a sweep failed; 2 the input cannot be used (one line says
why); 130 interrupted (a checkpoint was written).
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from fedrun.deferred import defer
from fedrun.errors import InputError, RunError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedrun.tracking.base import Observer

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def main() -> None:
    """The ``fedrun`` command."""
    defer("torch")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them over many lines
    sys.exit(_guarded())


def _guarded() -> int:
    """Run Hydra's application and turn the errors users are expected to meet into one line and an exit status."""
    import hydra

    from fedrun.composition_errors import explain
    from fedrun.config import conf_dir

    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(job)()
        return 0
    except Defect:
        raise
    except KeyboardInterrupt:
        print("fedrun: interrupted; the same command continues from the checkpoint", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # only the composition of the configuration is left, and Hydra's output folder
        print(f"fedrun: {explain(error, sys.argv[1:])}", file=sys.stderr)
        return BAD_INPUT


class Defect(Exception):  # noqa: N818 - it is the word for what went wrong
    """A job failed in a way fedrun did not foresee; shown with its traceback."""


def job(config: DictConfig) -> None:
    """One job of Hydra's: a single run, or one run of a sweep.

    A sweep's job never raises: it leaves its outcome in the sweep's folder (see :mod:`fedrun.sweep`), so that the other
    jobs go on. A single run ends the process with its exit status.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from fedrun.sweep import Outcome

    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    overrides = tuple(HydraConfig.get().overrides.task)
    if sweep:
        print(f"== {' '.join(overrides)}", flush=True)
    summary, failure, status = None, None, 0
    try:
        summary = _run(config)
    except InputError as error:
        failure, status = str(error), BAD_INPUT
    except RunError as error:
        failure, status = str(error), FAILED
    except Exception as error:
        if not sweep:
            raise Defect(" ".join(overrides)) from error
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    if failure is not None:
        print(f"fedrun: {failure}", file=sys.stderr, flush=True)
    if sweep:
        Outcome(overrides, summary, failure).save(HydraConfig.get().runtime.output_dir)
    elif status:
        sys.exit(status)


def _run(config: DictConfig) -> dict[str, Any]:
    """Check the composed configuration, carry it out and show the result; the run's summary."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from fedrun.config import Composed, build_experiment

    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    hydra_config = HydraConfig.get()
    composed = Composed(
        {str(key): value for key, value in plain.items()},
        dict(hydra_config.runtime.choices),
        tuple(hydra_config.overrides.task),
    )
    experiment = build_experiment(composed.config)

    # Only now is it worth loading what runs need and refused configurations do not.
    from rich.console import Console

    from fedrun.report.result import result_table
    from fedrun.run import run
    from fedrun.run_folder import finished

    _log_to_screen()
    if not experiment.overwrite and finished(composed.folder):
        print(f"{composed.title}: finished earlier; overwrite=true computes it again", flush=True)
    observers = [*_displays(experiment.display), experiment.tracking.observer()]
    summary = run(composed, experiment, observers, int(hydra_config.launcher.get("n_jobs") or 1))
    Console().print(result_table(summary))
    return summary


def _displays(kind: str) -> list[Observer]:
    """The observers that show progress on the screen."""
    from rich.console import Console

    from fedrun.tracking.console import LiveDisplay, PlainLines, display

    match kind:
        case "live":
            return [LiveDisplay(Console())]
        case "plain":
            return [PlainLines(sys.stdout)]
        case "none":
            return []
    return [display(sys.stdout)]


def _log_to_screen() -> None:
    """Show fedrun's own messages, and every package's warnings, as plain lines."""
    logging.getLogger("fedrun").setLevel(logging.INFO)
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        root.addHandler(handler)
