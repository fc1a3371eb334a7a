"""One run from its configuration: checked, made and told to the tracker.

Importing this module is cheap: what is heavy is imported once the configuration is known to be sound.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from fgl_bench.config.groups import build
from fgl_bench.config.settings import expand_paths
from fgl_bench.errors import UserError, raised_by_user
from fgl_bench.reporting import tracking
from fgl_bench.run.validation import validate


def run_one(cfg: DictConfig) -> Path:
    """Check one configuration and run it; returns the run directory."""
    expand_paths(cfg)
    validate(cfg)
    tracker = build(cfg.tracker)
    from fgl_bench.run.run import run

    try:
        run_dir = run(cfg)
    except SystemExit as error:  # sys.exit(0) in a user's module would end a run that has not been made with status 0
        where = raised_by_user(error)
        if where is None:
            raise
        raise UserError(where) from error
    tracking.publish(tracker, run_dir)
    return run_dir
