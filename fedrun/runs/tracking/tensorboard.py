"""TensorBoard: an observer that writes event files into the run's folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer, Row, RunInfo, round_of
from fedrun.experiment.tracking import Tracking
from fedrun.runs.folder import CURVES, EVENTS
from fedrun.runs.tracking.settings import flat_settings
from fedrun.system.extras import require_package

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@config_class
class TensorBoard(Tracking):
    """Write a run's rows as TensorBoard's event files.

    Attributes:
        plots: whether the run's curves are written as an image at the end.
    """

    plots: bool

    def observer(self) -> TensorBoardObserver:
        """The observer of one run.

        Raises:
            InputError: TensorBoard is not installed.
        """
        require_package("tensorboard", "tensorboard", "tracking=tensorboard")
        return TensorBoardObserver(self.plots)


class TensorBoardObserver(Observer):
    """Writes scalars with the round as the step."""

    def __init__(self, plots: bool) -> None:
        self._plots = plots
        self._folder = Path()
        self._writer: SummaryWriter | None = None
        self._round = 0

    def on_start(self, run: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = run.folder
        # The history is written again: TensorBoard's writer loses rows in a crash, and earlier sessions may have had
        # another tracker.
        shutil.rmtree(run.folder / EVENTS, ignore_errors=True)
        self._writer = SummaryWriter(str(run.folder / EVENTS))
        table = "\n".join(f"| {key} | {value} |" for key, value in flat_settings(run).items())
        self._writer.add_text("settings", f"| key | value |\n| --- | --- |\n{table}", 0)
        for row in run.history:
            self.on_row(row)

    def on_row(self, row: Row) -> None:
        assert self._writer is not None
        self._round = round_of(row)
        for key, value in row.items():
            if key != "round" and value is not None and math.isfinite(value):
                self._writer.add_scalar(key, value, self._round)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        if not self._plots or self._writer is None:
            return
        import numpy as np
        from PIL import Image

        with Image.open(self._folder / CURVES) as picture:
            self._writer.add_image("curves", np.asarray(picture.convert("RGB")), self._round, dataformats="HWC")

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
