from pathlib import Path

import pytest

from ..helpers.run_folders import Folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)
