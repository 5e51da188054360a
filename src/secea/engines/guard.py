"""Runs NVFlare's process of a kit for as long as whoever started this lives, and no longer: `python -m ... KIT`.

Standard input is a pipe to that process. When it closes, however that came about, NVFlare's process and all that it
started are ended.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from secea.engines.running import end_family


def main(kit: Path) -> int:
    """Run it. The exit code is NVFlare's."""
    process = subprocess.Popen([kit / "startup" / "sub_start.sh", "--once"], stdin=subprocess.DEVNULL)  # noqa: S603

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        end_family(process.pid)

    threading.Thread(target=watch, daemon=True).start()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
