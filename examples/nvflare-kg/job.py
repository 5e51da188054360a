"""Submit the job: `python job.py FOLDER` runs it in NVFlare's simulator, with the sites that prepare.py made there.

`python job.py KIT ADMIN` submits it to a running deployment, with the startup kit of an administrator of that name.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nvflare.recipe import ProdEnv, SimEnv

from secea.engines import nvflare

HOSPITALS = ["north", "east", "south", "west", "harbour"]

if __name__ == "__main__":
    job = nvflare.recipe(rounds=5, clients=len(HOSPITALS))
    if len(sys.argv) == 2:
        folder = Path(sys.argv[1]).absolute()
        os.environ[nvflare.SITES] = str(folder)
        nvflare.permit(folder / "run" / "secea")
        job.execute(SimEnv(clients=HOSPITALS, workspace_root=str(folder / "run")))
    else:
        run = job.execute(ProdEnv(sys.argv[1], login_timeout=60.0, username=sys.argv[2]))
        run.get_result(clean_up=False)
        print(run.get_status())
