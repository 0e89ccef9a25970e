"""Images by domain and class, and the partition in which every client has one domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedrun.data.datasets.domain_folders import DomainFolders
from fedrun.data.partitions.domains import Domains
from fedrun.system.errors import InputError


def paint(path: Path, red: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (red, 0, 0)).save(path)


def write(root: Path) -> Path:
    """Five images of each class as a photo, two cats and three dogs as a sketch; the red channel numbers them."""
    images = [("photo", "cat", 5), ("photo", "dog", 5), ("sketch", "cat", 2), ("sketch", "dog", 3)]
    number = 0
    for domain, name, count in images:
        for image in range(count):
            number += 1
            paint(root / "art" / domain / name / f"{image}.png", number)
    return root / "art"


def art(root: Path, **changes: Any) -> DomainFolders:
    settings: dict[str, Any] = {"cache_dir": None, "folder": "art", "classes": 2, "size": 4, "test_share": 0.5}
    colours: dict[str, Any] = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "augmentation": None}
    return DomainFolders(data_dir=str(root), **(settings | colours | changes))


def test_every_client_has_one_domain(tmp_path: Path) -> None:
    """With half for the test, images 1 and 3 of each class (from 0) are test images."""
    write(tmp_path)
    dataset = art(tmp_path).load()
    assert dataset.inputs[:, 0, 0, 0].tolist() == [1, 3, 5, 6, 8, 10, 11, 13, 15, 2, 4, 7, 9, 12, 14]
    assert dataset.targets.tolist() == [0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1]
    assert (dataset.train_size, dataset.class_names) == (9, ("cat", "dog"))
    federation = Domains(clients_per_domain=1, seed=None).split(dataset, 0)
    assert federation.train.names == federation.test.names == ("photo", "sketch")
    assert [federation.train[client].tolist() for client in (0, 1)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    assert [federation.test[client].tolist() for client in (0, 1)] == [[9, 10, 11, 12], [13, 14]]


def test_several_clients_of_a_domain(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = art(tmp_path).load()
    train = Domains(clients_per_domain=2, seed=None).split(dataset, 0).train
    assert train.names == ("photo/0", "photo/1", "sketch/0", "sketch/1")
    assert train.sizes.tolist() == [3, 3, 2, 1]
    assert sorted(train.samples[:6].tolist()) == [0, 1, 2, 3, 4, 5]
    assert sorted(train.samples.tolist()) == list(range(9))
    drawn = [Domains(clients_per_domain=2, seed=None).split(dataset, seed).train.samples.tolist() for seed in range(5)]
    assert any(samples != drawn[0] for samples in drawn)
    fixed = Domains(clients_per_domain=2, seed=0).split(dataset, 3).train
    assert fixed.samples.equal(train.samples)
    with pytest.raises(InputError, match="clients_per_domain=4 needs as many samples .* domain 'sketch' has 3$"):
        Domains(clients_per_domain=4, seed=None).split(dataset, 0)


def test_domains_with_other_classes_or_without_test_images_are_rejected(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(InputError, match="have 2 class folders; set dataset.classes=2$"):
        art(tmp_path, classes=3).load()
    with pytest.raises(InputError, match=r"=0\.3 leaves no test image of .*/sketch; allowed: a larger share$"):
        art(tmp_path, test_share=0.3).load()
    paint(folder / "sketch/eel/a.png", 1)
    with pytest.raises(InputError, match="the class 'eel' is in only one of the domains 'photo' and 'sketch'; "):
        art(tmp_path).load()
    paint(tmp_path / "one/photo/cat/a.png", 1)
    with pytest.raises(InputError, match="has 1 domain folders; allowed: at least 2$"):
        art(tmp_path, folder="one").load()
