"""The published files of datasets, and the files below ``data_dir`` that their loaders read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrun.data.download.http_file import get_json
from fedrun.system.errors import InputError

HUB = "https://huggingface.co"

CACHE = ".fedrun-cache"
"""Folder of the caches that loaders make next to a dataset's files."""

UNSPLIT = "all_data"
"""The folder of LEAF's scripts for all users, before users are sampled and split."""

CIFAR10 = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch", "batches.meta")
CIFAR100 = ("train", "test", "meta")

IDENTITIES, ATTRIBUTES, IMAGES = "identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba"
"""CelebA's own files, and the folder of its photographs."""

TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
GLOVE = "https://nlp.stanford.edu/data/glove.twitter.27B.zip"


@dataclass(frozen=True)
class RemoteFile:
    """One published file.

    Attributes:
        urls: addresses of the same file, tried in this order.
        target: relative to ``data_dir``: the file's name, or for an archive the folder that it is unpacked to.
        checksum: checksum of the publisher or a public library, such as ``md5:...``; None if there is none.
        unpack: for an archive: the prefix of the names of the files to unpack; it is removed from the names up to its
            last ``/``. None: not an archive.
    """

    urls: tuple[str, ...]
    target: str
    checksum: str | None = None
    unpack: str | None = None

    @property
    def file(self) -> str:
        """The published file's name."""
        return (self.target if self.unpack is None else self.urls[0]).rpartition("/")[2]


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a dataset, or of something that a dataset needs.

    Attributes:
        description: a few words.
        licence: the licence as stated by the publisher.
        megabytes: size of the download; None if it is not known.
        required: patterns of files below ``data_dir``; the dataset is complete when each one matches a file.
        downloads: returns the published files; its argument is another base address, or None.
        optional: patterns of further files of the dataset.
        alternatives: other forms of the dataset that the loader reads, each as patterns that must all match.
        parquet: whether the published files are the hub's Parquet files.
    """

    description: str
    licence: str
    megabytes: int | None
    required: tuple[str, ...]
    downloads: Callable[[str | None], tuple[RemoteFile, ...]]
    optional: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()
    parquet: bool = False

    def files(self, folder: Path) -> list[Path]:
        """All files of the dataset in a folder with the layout of ``data_dir``, without caches."""
        patterns = (*self.required, *self.optional)
        paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
        return sorted(path for path in paths if CACHE not in path.parts)

    def missing(self, data_dir: Path) -> list[str]:
        """The required patterns without a matching file; none if the dataset exists in an alternative form."""

        def unmatched(patterns: tuple[str, ...]) -> list[str]:
            return [pattern for pattern in patterns if next(data_dir.glob(pattern), None) is None]

        return [] if any(not unmatched(patterns) for patterns in self.alternatives) else unmatched(self.required)


def published(*downloads: RemoteFile) -> Callable[[str | None], tuple[RemoteFile, ...]]:
    """Files with known addresses; another base address replaces everything before their names."""

    def at(base: str | None) -> tuple[RemoteFile, ...]:
        if base is None:
            return downloads
        return tuple(
            RemoteFile(
                (f"{base.rstrip('/')}/{item.urls[0].rpartition('/')[2]}",), item.target, item.checksum, item.unpack
            )
            for item in downloads
        )

    return at


def on_hub(name: str, description: str, licence: str, *alternatives: tuple[str, ...]) -> DatasetFiles:
    """A dataset of LEAF as Parquet files, as the converter of the Hugging Face hub publishes them.

    Args:
        name: the dataset's name.
        description: see :class:`DatasetFiles`.
        licence: see :class:`DatasetFiles`.
        alternatives: further ones than LEAF's files before its split.
    """

    def at(base: str | None) -> tuple[RemoteFile, ...]:
        address = f"{(base or HUB).rstrip('/')}/api/datasets/flwrlabs/{name}/parquet"
        files = _parquet_addresses(get_json(address))
        if not files:
            raise InputError(f"{address} does not list Parquet files by split")
        return tuple(
            RemoteFile((url,), parquet_target(name, f"{split}-{number:04d}.parquet")) for split, number, url in files
        )

    return DatasetFiles(
        description, licence, None, (f"{name}/train/*",), at, optional=(f"{name}/**/*",),
        alternatives=(unsplit(name), *alternatives), parquet=True,
    )  # fmt: skip


def unsplit(name: str) -> tuple[str, ...]:
    """The pattern of the files of one of LEAF's datasets before its split."""
    return (f"{name}/{UNSPLIT}/*",)


def _parquet_addresses(listed: object) -> list[tuple[str, int, str]]:
    """Split, number and address of every file in the hub's list; none if it is not such a list.

    The hub answers ``{configuration: {split: [address]}}``.
    """
    configurations = listed if isinstance(listed, dict) else {}
    splits = configurations.get("default", next(iter(configurations.values()), None))
    if not isinstance(splits, dict):
        return []
    files: list[tuple[str, int, str]] = []
    for split, urls in splits.items():
        if not split.isidentifier() or not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            return []
        files += [(split, number, url) for number, url in enumerate(urls)]
    return files


def parquet_target(name: str, file: str) -> str:
    """The target of a Parquet file: ``<name>/test`` for the split ``test``, ``<name>/train`` for all others."""
    return f"{name}/{'test' if file.partition('-')[0] == 'test' else 'train'}/{file}"


def known_to_torchvision(
    name: str, files: Callable[[Any], Iterable[RemoteFile]]
) -> Callable[[str | None], tuple[RemoteFile, ...]]:
    """The published files of a dataset whose addresses torchvision has. Importing it is slow, so it is imported late.

    Args:
        name: torchvision's class.
        files: given that class, the published files.
    """

    def at(base: str | None) -> tuple[RemoteFile, ...]:
        from torchvision import datasets

        return published(*files(getattr(datasets, name)))(base)

    return at


def catalogue() -> dict[str, DatasetFiles]:
    """All datasets by name; addresses and checksums are those of the installed torchvision, if it has them."""

    def idx(name: str) -> Callable[[str | None], tuple[RemoteFile, ...]]:
        return known_to_torchvision(
            name,
            lambda kind: [
                RemoteFile(tuple(mirror + file for mirror in kind.mirrors), f"{name}/raw/{file}", f"md5:{md5}")
                for file, md5 in kind.resources
            ],
        )

    def idx_files(folder: str, *parts: str) -> tuple[str, ...]:
        names = (f"{part}-{kind}-ubyte*" for part in parts for kind in ("images-idx3", "labels-idx1"))
        return tuple(f"{folder}/raw/{name}" for name in names)

    def cifar(name: str) -> Callable[[str | None], tuple[RemoteFile, ...]]:
        return known_to_torchvision(name, lambda kind: [RemoteFile((kind.url,), ".", f"md5:{kind.tgz_md5}", unpack="")])

    svhn = known_to_torchvision(
        "SVHN",
        lambda kind: [
            RemoteFile((url,), f"SVHN/{file}", f"md5:{md5}")
            for url, file, md5 in (kind.split_list[split] for split in ("train", "test"))
        ],
    )
    emnist = known_to_torchvision(
        "EMNIST", lambda kind: [RemoteFile((kind.url,), "EMNIST/raw", f"md5:{kind.md5}", unpack="gzip/")]
    )
    imagenet = RemoteFile((TINY_IMAGENET,), ".", "md5:90528d7ca1a48142e341f4ef8d21d0de", unpack="")
    tweets = RemoteFile(
        ("https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",), "sent140/train", unpack="training."
    )
    glove = RemoteFile((GLOVE,), "glove", unpack="glove.twitter.27B.200d")
    leaf = "BSD 2-clause (LEAF)"
    return {
        "mnist": DatasetFiles(
            "handwritten digits", "CC BY-SA 3.0", 12, idx_files("MNIST", "train", "t10k"), idx("MNIST")
        ),
        "fmnist": DatasetFiles(
            "clothes", "MIT", 31, idx_files("FashionMNIST", "train", "t10k"),
            idx("FashionMNIST"),
        ),
        "emnist": DatasetFiles(
            "digits and letters", "not stated", 562,
            idx_files("EMNIST", "emnist-byclass-train", "emnist-byclass-test"), emnist,
            optional=("EMNIST/raw/*",),
        ),
        "cifar10": DatasetFiles(
            "photographs", "not stated", 171, tuple(f"cifar-10-batches-py/{file}" for file in CIFAR10),
            cifar("CIFAR10"),
        ),
        "cifar100": DatasetFiles(
            "photographs", "not stated", 170, tuple(f"cifar-100-python/{file}" for file in CIFAR100),
            cifar("CIFAR100"),
        ),
        "svhn": DatasetFiles(
            "house numbers", "non-commercial use", 247, ("SVHN/train_32x32.mat", "SVHN/test_32x32.mat"),
            svhn,
        ),
        "tinyimagenet": DatasetFiles(
            "photographs", "ImageNet's terms", 248,
            ("tiny-imagenet-200/train/*/images/*.JPEG", "tiny-imagenet-200/val/val_annotations.txt"),
            published(imagenet), optional=("tiny-imagenet-200/**/*",),
        ),
        "femnist": on_hub("femnist", "digits and letters by writer", leaf),
        "shakespeare": on_hub("shakespeare", "plays by role", leaf),
        "celeba": on_hub(
            "celeba", "faces by celebrity", "non-commercial research",
            tuple(f"celeba/{name}" for name in (IDENTITIES, ATTRIBUTES, f"{IMAGES}/*")),
        ),
        "sent140": DatasetFiles(
            "tweets by author", "not stated", 81, ("sent140/train/*",), published(tweets), optional=("sent140/**/*",),
            alternatives=(unsplit("sent140"),),
        ),
        "glove": DatasetFiles(
            "word vectors, for sent140", "PDDL 1.0", 1500, ("glove/glove.twitter.27B.200d.txt",), published(glove)
        ),
    }  # fmt: skip
