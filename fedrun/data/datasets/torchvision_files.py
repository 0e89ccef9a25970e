"""Datasets in torchvision's files and folders, which a run can download."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import DatasetConfig
from fedrun.system.errors import InputError, one_line
from fedrun.system.user_path import user_path

if TYPE_CHECKING:
    from fedrun.data.download.http_file import Progress

log = logging.getLogger(__name__)

LARGE = 50_000_000
"""Bytes of a file whose progress is logged."""


@config_class
class TorchvisionFiles(DatasetConfig):
    """Base class of these datasets. Files that exist are only read, so the folder can be read-only.

    Attributes:
        data_dir: folder in which the dataset has its own folder.
        download: whether to download missing files, as ``fedrun-data`` does.
    """

    data_dir: str
    download: bool

    option: ClassVar[str]
    """The dataset's name in ``dataset=`` and ``fedrun-data``."""
    torchvision_class: ClassVar[str]
    """The name of torchvision's class for the same data, if that reads the files."""

    @classmethod
    def torchvision_dataset(cls) -> Any:
        """torchvision's class for the same data. Importing it is slow, so it is imported late."""
        from torchvision import datasets

        return getattr(datasets, cls.torchvision_class)

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of the files."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Names of the required files, as in messages; ``[.gz]`` at the end: compressed or not."""

    def find(self, file: str) -> Path | None:
        """One of these files in any of its forms, or None."""
        path = self.folder / file
        return path if path.is_file() else None

    def require_files(self) -> tuple[Path, ...]:
        """The paths of the files, which are downloaded if they are missing and may be downloaded.

        Raises:
            InputError: files are missing, or the download failed.
        """
        found = self._found()
        if self.download and len(found) < len(self.files):
            self._download()
            found = self._found()
        if missing := [file for file in self.files if file not in found]:
            raise InputError(
                f"{self.folder} lacks {', '.join(missing)}: set dataset.download=true, or run `fedrun-data "
                f"{self.option} --data-dir {self.data_dir}`, with --from FOLDER if a folder has the published files"
            )
        return tuple(found.values())

    def read(self, root: Path, **split: object) -> Any:
        """One split, read by torchvision, which compares each file with its published checksum first.

        Raises:
            InputError: a file cannot be read, or is not the published one.
        """
        try:
            return self.torchvision_dataset()(root, **split)
        except MemoryError:
            raise
        except Exception as error:  # torchvision says in its own ways what is wrong with a file
            raise InputError(
                f"{self.folder} cannot be read as the published files of {self.option} ({one_line(str(error))}): "
                f"delete it and run `fedrun-data {self.option} --data-dir {self.data_dir}`"
            ) from error

    def _found(self) -> dict[str, Path]:
        """The paths of those files that exist, by name."""
        return {file: path for file in self.files if (path := self.find(file)) is not None}

    def _download(self) -> None:
        """Download the published files unless another process, such as one of the same run, is faster."""
        from fedrun.data.download.catalogue import catalogue
        from fedrun.data.download.install import download_dataset

        data_dir = user_path(self.data_dir, "dataset.data_dir")
        log.info("downloading %s to %s", self.option, self.folder)
        folder = self.folder.relative_to(data_dir)
        required = tuple(f"{folder}/{file.replace('[.gz]', '*')}" for file in self.files)
        published = replace(catalogue()[self.option], required=required)
        download_dataset(self.option, published, data_dir, None, _logged)


def _logged(file: str) -> Progress:
    """Logs each tenth of a large file."""
    logged = 0

    def progress(received: int, whole: int | None) -> None:
        nonlocal logged
        if whole is not None and whole >= LARGE and (tenths := 10 * received // whole) > logged:
            logged = tenths
            log.info("%s: %d %% of %d MB", file, 10 * tenths, whole / 1e6)

    return progress
