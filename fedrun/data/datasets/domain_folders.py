"""Images of several domains: one folder per domain, with one folder per class in each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Users
from fedrun.data.datasets.image_cache import ClassFiles, class_folders, images_in, split_files
from fedrun.data.datasets.image_files import ImageFiles
from fedrun.data.offsets import offsets_of
from fedrun.system.errors import InputError


@config_class
class DomainFolders(ImageFiles):
    """Images in ``<domain>/<class>/``, as in PACS (Li et al., 2017) and Office-Caltech (Gong et al., 2012).

    A domain is a user: a training user with its training images, and a test user with its test images. All domains must
    have the same classes. Domains and classes are numbered in the order of their folders' names; samples are ordered by
    domain, class and file name.

    Attributes (besides those of :class:`ImageFiles`):
        test_share: share of the images of each class in each domain for the test, by the rule of
            :func:`fedrun.data.datasets.image_cache.split_files`; the same for every seed.
    """

    test_share: Annotated[float, Gt(0), Lt(1)]

    def load(self) -> Dataset:
        """Map the cache, after making it from the image files if they have none yet.

        Raises:
            InputError: folders are missing, differ in their classes or have no images; an image cannot be decoded; a
                domain has no test image; the cache is damaged or cannot be written.
        """
        source = self.source
        domains = class_folders(source)
        names = self._class_names(source, domains)
        groups = {
            domain: [split_files(images_in(path / name), self.test_share) for name in names]
            for domain, path in domains.items()
        }
        for domain, files in groups.items():
            if not any(test for _, test in files):
                problem = f"dataset.test_share={self.test_share} leaves no test image of {source / domain}"
                raise InputError(f"{problem}; allowed: a larger share")
        train, test = (
            [
                ClassFiles(f"{split}/{domain}/{names[label]}", label, files[label][part])
                for domain, files in groups.items()
                for label in range(len(names))
                if files[label][part]
            ]
            for part, split in enumerate(("train", "test"))
        )
        sizes = [sum(len(files[part]) for files in groups[domain]) for part in (0, 1) for domain in groups]
        users = Users((*groups, *groups), torch.from_numpy(offsets_of(sizes)), len(groups))
        return replace(self.decoded(names, train, test), users=users)

    def _class_names(self, source: Path, domains: dict[str, Path]) -> tuple[str, ...]:
        """The names of the classes, after the check that all domains have the same ones."""
        if len(domains) < 2:
            raise InputError(f"{source} has {len(domains)} domain folders; allowed: at least 2")
        by_domain = {domain: tuple(class_folders(path)) for domain, path in domains.items()}
        (first, names), *others = by_domain.items()
        for domain, other_names in others:
            if different := sorted({*names} ^ {*other_names}):
                raise InputError(
                    f"{source}: the class {different[0]!r} is in only one of the domains {first!r} and {domain!r}; "
                    "allowed: the same classes in every domain"
                )
        if len(names) != self.classes:
            raise InputError(
                f"dataset.classes={self.classes}, but the domains of {source} have {len(names)} class folders; "
                f"set dataset.classes={len(names)}"
            )
        return names
