"""``fgl-bench`` and ``python -m fgl_bench``: the command line, in a process whose allocator is set for arrays."""

from fgl_bench.utils.allocator import restart


def main() -> None:
    """Entry point, see :func:`fgl_bench.cli.main.main`."""
    restart()
    from fgl_bench.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
