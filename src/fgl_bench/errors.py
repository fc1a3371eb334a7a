"""The one exception that stands for "a person can fix this"."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in the configuration, the data or the surroundings of a run.

    The message is one line and says what is wrong, which key sets it and what is allowed. The command line prints it
    without a traceback and exits with a non-zero status.
    """
