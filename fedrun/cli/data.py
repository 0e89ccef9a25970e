"""The ``fedrun-data`` command: fetch datasets, list them, show a federation.

Exit status: 0 done; 1 there is too little memory; 2 the input cannot be used, or a file cannot be written (one line
says why); 130 interrupted, 143 terminated (fetched files are kept).
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.cli.entrypoint import OneLineParser, run_command
from fedrun.cli.report_options import PICTURES
from fedrun.config.options import option_files
from fedrun.config.overrides import quoted
from fedrun.config.suggestions import did_you_mean
from fedrun.system.errors import InputError
from fedrun.system.signals import describe_stop
from fedrun.system.user_path import user_path

if TYPE_CHECKING:
    from fedrun.data.download.catalogue import DatasetFiles
    from fedrun.data.download.install import Reporter

EPILOG = """examples:
  fedrun-data list                                     available and missing datasets
  fedrun-data femnist                                  fetch it into data/
  fedrun-data cifar10 --from ~/Downloads               use files that were downloaded before
  fedrun-data show dataset=digits partition=dirichlet  the clients' samples and labels: numbers and two pictures
"""


def main() -> None:
    """The ``fedrun-data`` command."""
    run_command(run, "fedrun-data")


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit status."""
    parser = OneLineParser(
        prog="fedrun-data",
        description="Fetches datasets and shows federations.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", default="", help="a dataset to fetch, or list, or show")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="for show: as for fedrun")
    parser.add_argument("--data-dir", type=path_of("--data-dir"), help="folder of the datasets (default: data)")
    parser.add_argument("--url", help="base address to fetch from instead of the publisher's")
    parser.add_argument(
        "--from", type=path_of("--from"), dest="source", help="folder or archive to take the files from"
    )
    parser.add_argument("--config-dir", help="for show: folder of further options, as for fedrun")
    parser.add_argument(
        "--to", type=path_of("--to"), help="for show: folder for the pictures (default: OUTPUT_DIR/pictures)"
    )
    options = parser.parse_intermixed_args(arguments)
    logging.basicConfig(handlers=[logging.StreamHandler(sys.stdout)], format="%(message)s", force=True)
    logging.getLogger("fedrun").setLevel(logging.INFO)
    try:
        data_dir = options.data_dir or Path("data")
        show_only = {"--config-dir": options.config_dir, "--to": options.to}
        fetch_only = {"--from": options.source, "--url": options.url}
        ignored = {"show": fetch_only, "list": fetch_only | show_only}.get(options.what, show_only)
        if given := [f"{name} {value}" for name, value in ignored.items() if value is not None]:
            purpose = "showing a federation" if given[0].startswith(tuple(show_only)) else "fetching a dataset"
            raise InputError(f"{given[0]}: is for {purpose}")
        if options.what != "show" and options.settings:
            if options.what != "list":
                known_dataset(options.what)
            raise InputError(
                f"{options.settings[0]}: settings are for fedrun-data show, and datasets are fetched one by one; "
                "--data-dir is the folder of the datasets"
            )
        match options.what:
            case "show":
                settings = list(options.settings)
                if options.data_dir is not None:
                    settings.append(f"data_dir={quoted(str(options.data_dir))}")
                show(settings, options.to, options.config_dir)
            case "list":
                list_datasets(data_dir)
            case name:
                fetch(name, data_dir, options.url, options.source)
    except KeyboardInterrupt as error:
        word, status = describe_stop(error)
        print(f"fedrun-data: {word}; the same command continues", file=sys.stderr)
        return status
    return 0


def path_of(option: str) -> Callable[[str], Path]:
    """The type of an option that takes a path; the shell does not expand a ``~`` after an equals sign."""
    return partial(user_path, key=option)


def fetch(name: str, data_dir: Path, url: str | None, source: Path | None) -> None:
    """Fetch a dataset, or import it from the user's files.

    Raises:
        InputError: the dataset does not exist, or it cannot be fetched.
    """
    from fedrun.data.download.install import download_dataset, import_dataset, interrupted

    entry = known_dataset(name)
    if source is not None and not source.exists():
        raise InputError(f"--from {source}: no such file or folder")
    if not entry.missing(data_dir) and not interrupted(name, data_dir):
        unused = " and ".join(f"{flag} {value}" for flag, value in {"--from": source, "--url": url}.items() if value)
        reason = f"; {unused} not used: to replace the files, delete them first" if unused else ""
        print(f"{name} is in {data_dir}{reason}")
    elif source is None:
        with _progress() as report:
            download_dataset(name, entry, data_dir, url, report)
    else:
        import_dataset(name, entry, data_dir, source, url)


def known_dataset(name: str) -> DatasetFiles:
    """A dataset that can be fetched.

    Raises:
        InputError: there is none of this name.
    """
    from fedrun.data.download.catalogue import catalogue

    entries = catalogue()
    if name not in entries:
        if name in option_files("dataset"):
            raise InputError(f"{name}: fedrun-data has nothing to fetch for it; use dataset={name}")
        problem = f"{name}: no such dataset" if name else "no dataset is named"
        similar = did_you_mean(name, [*entries, "list", "show"])
        raise InputError(f"{problem}; allowed: {', '.join(entries)}, or list, or show{similar}")
    return entries[name]


def list_datasets(data_dir: Path) -> None:
    """Print every dataset that can be fetched, and the files that are missing."""
    from fedrun.data.download.catalogue import catalogue

    for name, entry in catalogue().items():
        missing = entry.missing(data_dir)
        size = "" if entry.megabytes is None else f"{entry.megabytes} MB, "
        print(
            f"{name:<13}{'missing' if missing else 'available':<11}{entry.description}; {size}licence: {entry.licence}"
        )
        if missing:
            first, *others = missing
            more = f" and {len(others)} more" if others else ""
            print(f"{'':<13}lacks {data_dir / first}{more}")


def show(settings: Sequence[str], folder: Path | None, config_dir: str | None) -> None:
    """Print a composed federation's numbers and write its pictures.

    Args:
        settings: as for fedrun, such as ``dataset=mnist``.
        folder: folder for ``samples.png`` and, if samples have classes, ``labels.png``; None: ``output_dir/pictures``.
        config_dir: folder of further options.

    Raises:
        InputError: the configuration or the data cannot be used, or the pictures cannot be written.
    """
    from fedrun.config.composed import compose
    from fedrun.experiment.experiment import build_experiment
    from fedrun.runs.display.federation import plot_labels, plot_sizes, summarise
    from fedrun.simulation.prepared_federation import prepare_federation

    experiment = build_experiment(compose(settings, config_dir))
    folder = Path(experiment.output_dir) / PICTURES if folder is None else folder
    federation = prepare_federation(experiment)
    print(summarise(federation))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = {"samples.png": plot_sizes}
        if federation.dataset.spec.task.has_classes:
            pictures = {"labels.png": plot_labels, **pictures}
        for name, plot in pictures.items():
            plot(federation, folder / name)
            print(folder / name)
    except OSError as error:
        raise InputError(f"{folder}: the pictures cannot be written: {error.strerror}; choose another --to") from error


@contextmanager
def _progress() -> Iterator[Reporter]:
    """A progress bar for each file in a terminal; otherwise messages only."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from fedrun.data.download.http_file import Progress as ProgressCallback

    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        disable=not sys.stdout.isatty(),
    ) as bars:  # fmt: skip

        def report(file: str) -> ProgressCallback:
            task = bars.add_task(file, total=None)
            return lambda have, whole: bars.update(task, completed=have, total=whole)

        yield report


if __name__ == "__main__":
    main()
