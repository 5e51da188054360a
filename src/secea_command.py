"""The entry point of the command `secea`: it imports `secea.cli` and runs it.

It is a module outside the package, because importing the package takes a while. This way Ctrl-C is handled cleanly even
if it comes during that import.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130


def _leave(*_: object) -> None:
    """Exit at once. Nothing needs cleaning up yet, and an exception in the middle of an import may get lost."""
    os.write(2, b"secea: interrupted\n")
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line, ready for Ctrl-C from the first import on."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # otherwise the caller wants interrupts to be ignored
        signal.signal(signal.SIGINT, _leave)
    from secea.cli import main as command

    try:
        signal.signal(signal.SIGINT, before)
        command(prog_name="secea")
    except KeyboardInterrupt:
        _leave()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # a pool's thread that was just starting is known to nobody, and would never end
            with suppress(OSError):  # nobody may be reading any more
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    main()
