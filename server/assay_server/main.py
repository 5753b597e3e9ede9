"""The program ``assay-server``.

Every worker process of the analysis imports this module again, because Python's ``spawn`` imports the main
module of its parent: it loads nothing before :func:`main` is called.
"""

from __future__ import annotations

from assay_core.loading import loading


def main() -> None:
    """The console script."""
    with loading():
        from assay_server.cli.program import run_program  # noqa: PLC0415 - see above
    run_program()


if __name__ == "__main__":
    main()
