"""``fgl-bench`` and ``python -m fgl_bench``: the command line."""

import gc
import signal


def main() -> None:
    """Entry point, see :func:`fgl_bench.cli.main.main`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are imported, Ctrl-C would print a traceback
    gc.disable()  # until everything is imported: collections between imports cost 0.3 s and find nothing
    from fgl_bench.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
