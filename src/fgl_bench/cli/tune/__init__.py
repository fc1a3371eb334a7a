"""Hyperparameter search with Optuna: ``fgl-bench tune SPACE KEY=VALUE...`` (the ``tune`` extra).

A trial is a normal run, so it has a run directory and is not repeated. The objective is the *validation* score at the selected
point; test scores are never read, not even for the best trial. The study is a journal next to the runs. Several processes
on one file system can share it with the same command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fgl_bench.cli.tune.space import FOLDER, Options, read_options, read_space, spaces
from fgl_bench.config.values import plain


def search(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """The command; without arguments it lists the spaces. ``folders`` are those of ``--config-dir``.

    Raises:
        UserError: a space or a key is wrong, or Optuna is not installed.
        KeyboardInterrupt: the search was interrupted; finished trials are recorded.
    """
    if not arguments:
        for name in spaces():
            first = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
            print(f"{name:<14} {first.removeprefix('#').strip()}")
        print(f"keys of the search: {', '.join(f'{key}={plain(value)}' for key, value in vars(Options()).items())}")
        return
    own = [text for text in arguments[1:] if text.partition("=")[0] in vars(Options())]
    space, overrides = read_space(arguments[0]), [text for text in arguments[1:] if text not in own]
    options = read_options(own)
    from fgl_bench.cli.tune.study import Search, print_outcome

    current = Search(space, overrides, options, folders)
    try:
        current.run()
    except KeyboardInterrupt:
        print_outcome(current)
        print("interrupted: give the same command to resume", flush=True)
        raise
    print_outcome(current)
