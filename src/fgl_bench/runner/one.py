"""One run from its configuration: checked, made and told to the tracker.

Importing this module is cheap: what is heavy is imported once the configuration is known to be sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import DictConfig

from fgl_bench.config.settings import expand_paths
from fgl_bench.errors import UserError, raised_by_user
from fgl_bench.reporting import tracking
from fgl_bench.runner.validation import validate

if TYPE_CHECKING:
    from fgl_bench.runner.run import Finished


def run_one(cfg: DictConfig) -> Finished:
    """Check one configuration and make its run, unless it is there already."""
    expand_paths(cfg)
    spec = validate(cfg)
    from fgl_bench.runner.run import run

    try:
        finished = run(spec)
    except SystemExit as error:  # sys.exit(0) in a user's module would end a run that has not been made with status 0
        where = raised_by_user(error)
        if where is None:
            raise
        raise UserError(where) from error
    tracking.publish(spec.tracker, finished.folder)
    return finished
