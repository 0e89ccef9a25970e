"""Weights & Biases: an observer that mirrors the run's files."""

from __future__ import annotations

import logging
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer, Row, RunInfo, round_of
from fedrun.experiment.tracking import Tracking
from fedrun.runs.tracking.settings import FILES, Artifact, flat_settings, run_name
from fedrun.system.errors import short_message

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline", "disabled"]

KEY_HOST = "api.wandb.ai"
"""The name under which ``wandb login`` has stored keys in netrc files for years, whatever the service is called now."""


LONGEST_NAME = 128
"""W&B's limit for the name of a run, in characters."""


START_SECONDS = 10.0
"""The longest wait for the service's first answer; after that the run is recorded offline."""

FINISH_SECONDS = 60.0
"""The longest wait for the last rows to be uploaded; the remaining ones can be sent with ``wandb sync``."""


@config_class
class Wandb(Tracking):
    """Mirror a run to Weights & Biases.

    Attributes:
        mode: ``auto`` is online if an API key is known and offline otherwise (``WANDB_MODE`` takes precedence);
            ``disabled`` does not even import wandb.
        project: the W&B project.
        entity: the W&B user or team; None for the key's own default.
        name: name of the run; None: strategy, dataset, further overrides and seed.
        group: group of the run; None: the sweep; for a single run all its seeds.
        job_type: type of the run.
        tags: tags of the run.
        notes: notes on the run.
        artifacts: which of the run's files are uploaded at the end.
    """

    mode: Mode
    project: str
    entity: str | None
    name: str | None
    group: str | None
    job_type: str | None
    tags: tuple[str, ...]
    notes: str | None
    artifacts: tuple[Artifact, ...]

    def observer(self) -> WandbObserver:
        """The observer of one run."""
        return WandbObserver(self)


class WandbObserver(Observer):
    """Mirrors a run's rows to W&B, online or in an offline folder inside the run's own.

    It never prompts and never waits for long. Without a connection, the run is recorded offline.
    """

    def __init__(self, settings: Wandb) -> None:
        self._settings = settings
        self._mode = settings.mode
        self._info: RunInfo | None = None
        self._round = 0
        self._run: wandb.Run | None = None
        self._id = ""
        self._recorded = Path()  # holds the last round that was recorded offline
        self._completed = False

    def on_start(self, run: RunInfo) -> None:
        if self._mode == "disabled" or (self._mode == "auto" and os.environ.get("WANDB_MODE") == "disabled"):
            return
        self._id, self._info = run.tracking_id, run
        self._run = self._open(run)
        self._recorded = Path(self._run.dir).parents[1] / f"last-round-{self._id}"
        sent = self._sent(self._run)
        self._round = round_of(run.history[-1]) if run.history else 0
        for row in run.history:  # sessions without this tracker have made some
            if round_of(row) > sent:
                self.on_row(row)
        if not Path(self._run.dir).resolve().is_relative_to(run.folder.resolve()):
            log.warning("W&B cannot write to %s, so it records in %s", run.folder, Path(self._run.dir).parent)

    def _sent(self, run: wandb.Run) -> int:
        """The last round that earlier sessions have recorded, -1 if there is none."""
        if run.resumed:
            summary: Any = run.summary  # W&B's class has no types
            return int(summary.get("round", -1))
        return int(self._recorded.read_text()) if self._recorded.exists() else -1

    def on_row(self, row: Row) -> None:
        if self._run is None:
            return
        self._round = step = round_of(row)
        self._run.log({key: value for key, value in row.items() if value is not None}, step=step)
        if self._run.offline:
            self._recorded.write_text(str(step))

    def on_end(self, summary: Mapping[str, Any]) -> None:
        self._completed = True
        if self._run is None:
            return
        from fedrun.runs.summary import beyond_rows  # it imports torch

        self._run.summary.update(beyond_rows(summary))
        self._upload(self._run)

    def close(self) -> None:
        # Removed first: a run that cannot be finished must not be used or finished again later.
        run, self._run = self._run, None
        if run is None:
            return
        run.finish(exit_code=0 if self._completed else 1)
        if run.offline:
            log.info("W&B recorded offline; to upload: wandb sync --id %s %s", self._id, Path(run.dir).parent)

    def _upload(self, run: wandb.Run) -> None:
        """Upload the chosen files: pictures as images, the others as artifacts of the run."""
        import wandb

        assert self._info is not None
        for artifact in self._settings.artifacts:
            for path in (self._info.folder / name for name in FILES[artifact]):
                if artifact == "plots":
                    run.log({path.stem: wandb.Image(str(path))}, step=self._round)
                else:
                    run.log_artifact(str(path), name=f"{artifact}-{self._info.tracking_id}", type=artifact)

    def _open(self, info: RunInfo) -> wandb.Run:
        # wandb's usage reports keep a process alive for half a minute when the network drops packets.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        wandb.setup(wandb.Settings(silent=True, quiet=True))  # also silences messages before a run exists
        key = known_key(wandb.setup().settings.base_url)
        mode = self._effective_mode(key)
        if mode == "online":
            try:
                return self._init(info, "online", key, info.tracking_id)
            except Exception as error:
                log.warning("W&B cannot be used online, so this run is recorded offline: %s", short_message(error))
                # wandb's service considers the id of the failed run in use until this process ends.
                return self._init(info, "offline", None, f"{info.tracking_id}-offline")
        return self._init(info, "offline", None, info.tracking_id)

    def _effective_mode(self, key: str | None) -> Literal["online", "offline"]:
        mode = os.environ.get("WANDB_MODE") if self._mode == "auto" else self._mode
        if mode and mode not in ("online", "offline"):  # such as dryrun, W&B's old word for offline
            log.warning("WANDB_MODE=%s: this run is recorded offline; allowed: online, offline, disabled", mode)
            mode = "offline"
        if mode == "online" and key is None:
            log.warning("W&B has no API key (WANDB_API_KEY or `wandb login`), so this run is recorded offline")
        return "online" if key is not None and mode != "offline" else "offline"

    def _init(self, info: RunInfo, mode: Literal["online", "offline"], key: str | None, id: str) -> wandb.Run:
        import wandb

        settings = wandb.Settings(
            api_key=key,  # given, so that wandb has no reason to ask for one
            silent=True,
            quiet=True,
            console="off",
            init_timeout=START_SECONDS,
            finish_timeout=FINISH_SECONDS,
        )
        return wandb.init(
            mode=mode,
            project=self._settings.project,
            entity=self._settings.entity,
            group=self._settings.group or info.sweep or info.group,
            job_type=self._settings.job_type,
            tags=list(self._settings.tags),
            notes=self._settings.notes,
            name=self._settings.name or run_name(info)[:LONGEST_NAME],
            id=id,
            resume="allow",
            reinit="create_new",  # a separate run, even if another job of this process left one open
            dir=info.folder,
            config=flat_settings(info),
            settings=settings,
        )


def known_key(base_url: str) -> str | None:
    """The API key in ``WANDB_API_KEY`` or in the netrc file, or None. It never prompts."""
    if key := os.environ.get("WANDB_API_KEY"):
        return key
    candidates = [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    for candidate in candidates:
        try:
            entries = netrc.netrc(os.path.expanduser(candidate))
        except (OSError, netrc.NetrcParseError):
            continue
        for host in (urlsplit(base_url).netloc, KEY_HOST):
            if host in entries.hosts and (password := entries.hosts[host][2]):
                return password
    return None
