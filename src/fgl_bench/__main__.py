"""``fgl-bench`` and ``python -m fgl_bench``: the command line."""

import signal


def main() -> None:
    """Entry point, see :func:`fgl_bench.cli.main.main`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are imported, Ctrl-C would print a traceback
    from fgl_bench.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
