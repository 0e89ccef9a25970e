"""Datasets in torchvision's files and folders, which its downloader can fetch."""

from __future__ import annotations

import http.client
import logging
import os
import tempfile
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import DatasetConfig
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import torchvision

logger = logging.getLogger(__name__)


@config_class
class TorchvisionFiles(DatasetConfig):
    """Base class of these datasets. Files are only read, so the folder can be read-only.

    Attributes:
        data_dir: folder in which the dataset has its own folder.
        download: whether to download missing files with torchvision.
    """

    data_dir: str
    download: bool

    name: ClassVar[str]
    option: ClassVar[str]
    """The dataset's name in ``dataset=`` and ``fedrun-data``."""
    torchvision_class: ClassVar[str]
    """The name of torchvision's class for the same data."""
    class_names: ClassVar[tuple[str, ...]]

    @classmethod
    def torchvision_dataset(cls) -> type[torchvision.datasets.VisionDataset]:
        """torchvision's class for the same data, which knows the files' addresses and checksums."""
        import torchvision

        dataset: type[torchvision.datasets.VisionDataset] = getattr(torchvision.datasets, cls.torchvision_class)
        return dataset

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of the files."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Names of the required files, as in messages."""

    def find(self, file: str) -> Path | None:
        """One of these files in any of its forms, or None."""
        path = self.folder / file
        return path if path.is_file() else None

    @property
    @abstractmethod
    def manual_steps(self) -> str:
        """How to get the files without fedrun, as the end of a sentence."""

    @property
    def remedy(self) -> str:
        """How to get the files before a run, as the end of a sentence."""
        return f"run `fedrun-data {self.option} --data-dir {self.data_dir}`, or {self.manual_steps}"

    @abstractmethod
    def download_to(self, temporary: Path) -> Iterable[Path]:
        """Download and unpack into an empty folder; return the files to move to :attr:`folder`."""

    def require_files(self) -> None:
        """Download the files if they are missing and may be downloaded.

        Raises:
            InputError: files are missing, or the download failed.
        """
        if self.download and self._missing():
            self._download()
        if missing := self._missing():
            raise InputError(f"{self.folder} lacks {', '.join(missing)}: set dataset.download=true, {self.remedy}")

    def path(self, file: str) -> Path:
        """The path of one of the files, which :meth:`require_files` has checked."""
        path = self.find(file)
        if path is None:
            raise InputError(f"{self.folder / file} was deleted while the files were read")
        return path

    def _missing(self) -> list[str]:
        return [file for file in self.files if self.find(file) is None]

    def _download(self) -> None:
        """Download to a temporary folder first, so that a parallel run sees complete files only."""
        logger.info("downloading %s to %s", self.name, self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="download-", dir=self.folder) as temporary:
                for path in self.download_to(Path(temporary)):
                    os.replace(path, self.folder / path.name)
        except (RuntimeError, OSError, EOFError, http.client.HTTPException) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{self.name} could not be downloaded to {self.folder} ({reason}): {self.remedy}"
            ) from error
