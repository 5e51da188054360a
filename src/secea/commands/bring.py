"""What a site brings that has a table in a file, and does not train: `secea join --table` names it in its settings."""

from __future__ import annotations

from pathlib import Path

from secea.adapters import in_order
from secea.atomic import replace_files
from secea.commands import formats
from secea.engines.host import Participant
from secea.table import Table


def table(
    file: str, result: str, *, header: bool | None = None, name_column: str = "", columns: str = ""
) -> Participant:
    """The rows of a file, in each round. The last means go to `result`, written as the file is."""
    chosen = tuple(each.strip() for each in columns.split(",") if each.strip())
    source = formats.read(Path(file), formats.Layout(header=header, name_column=name_column or None, columns=chosen))

    def train(_means: Table | None, _round: int) -> Table:
        return source.table

    def done(means: Table | None) -> None:
        if means is not None:
            target = Path(result)
            beside = {target.with_name(name): content for name, content in source.beside.items()}
            matrix = in_order(tuple(source.table.names), source.table.dim, means)
            replace_files({target: source.write(matrix)} | beside, durable=True)

    return Participant(lambda: source.table.names, train, done)
