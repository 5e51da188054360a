"""The command `secea`. It stands beside the package: importing that takes a while, and Ctrl-C may come meanwhile."""

from __future__ import annotations

import os
import signal


def _leave(*_: object) -> None:
    """Nothing has begun yet, so there is nothing to clean up; and an error in the middle of an import may get lost."""
    os.write(2, b"secea: interrupted\n")
    os._exit(130)


def main() -> None:
    """Run the command line, ready for Ctrl-C from the first import on."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else somebody wants interrupts to be ignored
        signal.signal(signal.SIGINT, _leave)
    from secea.cli import main as command

    try:
        signal.signal(signal.SIGINT, before)
        command(prog_name="secea")
    except KeyboardInterrupt:
        _leave()


if __name__ == "__main__":
    main()
