"""Claims about both forms as they are installed: whatever happens to them, they do what the code did that was examined.

`transcripts` compares an honest run. Here everything may go wrong, in lives that are drawn from numbers (`conduct`).
"""

from __future__ import annotations

from secea.audit import KEYED, PAILLIER, Subject, claim
from secea.audit.conduct.record import compared
from secea.audit.mutants import conduct as mutants


@claim("record", KEYED, PAILLIER, mutants=mutants.OF_PARTIES)
def conduct_of_parties(subject: Subject) -> int:
    """Both forms: in lives in which everything goes wrong, parties send, refuse, blame and keep what is recorded.

    Server, clients, users and network lie, vanish, restart and change their minds at random. Noted are all messages,
    every refusal with whom it names, every state that would be saved, and all means.
    """
    return compared(subject, "parties")


@claim("record", KEYED, PAILLIER, mutants=mutants.OF_SITES)
def conduct_of_sites(subject: Subject) -> int:
    """Both forms: whatever happens to them, driver and hosts reply, save, log and return what is recorded.

    Disks are full or damaged, orders and replies are lost, late, doubled or forged, users' functions fail, and sites
    restart with states that are old or somebody else's.
    """
    return compared(subject, "sites")


@claim("record", KEYED, PAILLIER, mutants=mutants.OF_FIGURES)
def figures_and_files(subject: Subject) -> int:
    """Both forms: bounds, sizes, sets, numbers, names, files and parsers are what is recorded, for thousands of inputs.

    Right and wrong ones are drawn at random: parameters and options, tables of all kinds, names, federation files,
    logs, and bytes that come from others.
    """
    return compared(subject, "figures")
