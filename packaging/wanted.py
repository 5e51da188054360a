"""Print what pyproject.toml (in this folder) needs, with the extras that are named: one requirement on each line."""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))

wanted = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
for extra in sys.argv[1:]:
    wanted += PROJECT["project"]["optional-dependencies"][extra]
print("\n".join(wanted))
