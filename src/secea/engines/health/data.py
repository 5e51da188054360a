"""What a site brings: its function is called as a run would call it, but nothing is trained."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from typing import Final

from secea.engines.health.finding import Finding, ok, warning, wrong
from secea.engines.host import Participant
from secea.engines.site import Site
from secea.errors import ParamsError, TableError
from secea.names import keys_of, spellings
from secea.params import Params
from secea.table import Name, canonical_names

SHOWN: Final = 3
"""Groups of names that nearly match."""
_ABOUT: Final = "participant"


def participant(site: Site, params: Params) -> Iterator[Finding]:
    """It can be made, and gives names that fit. What it prints goes to standard error."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            made: object = site.brings()
            names = tuple(made.names()) if isinstance(made, Participant) else ()
    except ParamsError as error:
        yield wrong(_ABOUT, str(error), "is the module beside site.toml, or installed?")
        return
    except (Exception, SystemExit) as error:  # it is the site's own code, which may raise anything
        yield wrong(_ABOUT, f"{site.participant} raised {type(error).__name__}: {error}{_at(error)}", "mend it")
        return
    if not isinstance(made, Participant):
        kind = type(made).__name__
        yield wrong(_ABOUT, f"{site.participant} gives a {kind}", "return a secea.engines.host.Participant")
        return
    yield ok(_ABOUT, f"{site.participant} can be called")
    yield from _names(names, params)
    if made.dim is not None:
        says = f"rows have {made.dim} numbers, and the federation file says dim = {params.dim}"
        if made.dim == params.dim:
            yield ok("dim", says)
        else:
            yield wrong("dim", says, "change the model, or agree on a new federation file")


def _names(given: tuple[object, ...], params: Params) -> Iterator[Finding]:
    try:
        names = canonical_names(given)
        keys_of(names, params.normalize)
    except TableError as error:
        yield wrong("names", str(error), "give each entity one name, as agreed with the others")
        return
    most = params.max_entities
    count = f"{len(names):,} of at most {most:,}" if most is not None else f"{len(names):,}"
    if most is not None and len(names) > most:
        yield wrong(
            "names", f"too many: {len(names):,}, and max_entities is {most:,}", "agree on a new federation file"
        )
    elif not names:
        yield warning("names", "there are none: this site takes part, and gets no means")
    else:
        yield ok("names", f"they fit: {count}")
    yield from _near(names)


def _near(names: tuple[Name, ...]) -> Iterator[Finding]:
    groups = spellings(names)
    if groups:
        shown = "; ".join(" and ".join(map(repr, group)) for group in groups[:SHOWN])
        more = f"; and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
        yield warning(
            "spelling", f"names that nearly match are several entities: {shown}{more}", "is each of them meant so?"
        )


def _at(error: BaseException) -> str:
    """Where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
