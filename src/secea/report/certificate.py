"""What an audit found, as one page to send to the other organisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from secea.audit import Finding
from secea.audit.installation import Installation
from secea.report.blocks import section, table
from secea.report.markup import Content, Markup, tag
from secea.report.page import document


@dataclass(frozen=True)
class Certificate:
    """One run of the audit."""

    installation: Installation
    findings: Sequence[Finding] = field(repr=False)
    titles: Mapping[str, str]
    """A heading for each form."""
    left_out: int
    """How many claims there are that were not asked for."""
    thorough: bool
    ended: datetime
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every claim was checked, and holds."""
        return not self.left_out and all(finding.ok for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        count = len(self.findings)
        objections = sum(bool(each.objection) for each in self.findings)
        broken = sum(bool(each.broke_off) for each in self.findings)
        said = []
        if objections:
            said.append(f"{objections} of {count} claims {'does' if objections == 1 else 'do'} not hold.")
        if broken:
            said.append(f"{broken} of {count} claims could not be checked.")
        if not said:
            some = "1 claim was checked, and holds." if count == 1 else f"{count} claims were checked, and hold."
            said.append(some if self.left_out else f"All {count} claims hold.")
        if self.left_out:
            said.append(f"{self.left_out} {'was' if self.left_out == 1 else 'were'} left out.")
        return " ".join(said)


def page(found: Certificate) -> str:
    """The whole page. It loads nothing."""
    here = found.installation
    eyebrow = tag(
        "p", tag("b", "audit"), f" · secea {here.version} · {found.ended:%Y-%m-%d %H:%M} UTC", class_="eyebrow"
    )
    seal = tag(
        "div",
        tag("span", "Digest of the files that were audited: whoever runs the same code has the same"),
        tag("b", here.digest, class_="print"),
        class_="seal",
    )
    head = tag("header", eyebrow, tag("h1", found.verdict), _alarms(found), seal)
    body = [head, _looked_at(found), *(_claims(found, form) for form in found.titles), _limits(), _files(here)]
    return document("audit", tag("div", body, class_="policy"))


def _alarms(found: Certificate) -> Content:
    """What must not be overlooked: objections, claims that were not checked, files that were changed."""
    said = [f"{each.name} ({each.form}): {each.objection or each.broke_off}" for each in found.findings if not each.ok]
    if found.installation.origin.startswith("NOT"):
        said.append(found.installation.origin)
    return tag("div", [tag("p", each) for each in said], class_="note", role="note") if said else None


def _looked_at(found: Certificate) -> Markup:
    here = found.installation
    cases = sum(finding.cases for finding in found.findings)
    rows: list[list[Content]] = [
        ["code", f"secea {here.version}, {here.origin}"],
        ["system", here.system],
        ["libraries", ", ".join(f"{name} {version}" for name, version in here.libraries.items())],
        ["extent", f"{cases:,} cases in {_duration(found.seconds)}{', thorough' if found.thorough else ''}"],
    ]
    for name, digest in here.compiled.items():
        rows.append(["compiled here", tag("td", name, tag("br"), tag("span", digest, class_="print"))])
    return section("What was audited", "The code that is installed, run as it is.", table([], rows, "said"))


def _claims(found: Certificate, form: str) -> Content:
    mine = [finding for finding in found.findings if finding.form == form]
    if not mine:
        return None
    lead = "A case is one computation, attack or comparison. Every claim is checked on real parties."
    rows = [[_name(each), _text(each.claim), _result(each)] for each in mine]
    tables = [_tried(each) for each in mine if each.table]
    return section(found.titles[form], lead, table(["claim", "", ""], rows, "claims"), tables)


def _name(finding: Finding) -> list[Markup]:
    """What a claim is called, and how it was checked."""
    cases = "1 case" if finding.cases == 1 else f"{finding.cases:,} cases"
    return [tag("b", finding.name), tag("span", f"{finding.method}, {cases}")]


def _tried(finding: Finding) -> Markup:
    """What was tried, and what came of it."""
    rows = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row.values()] for row in finding.table]
    return tag("details", tag("summary", finding.title), table(list(finding.table[0]), rows, "tried"))


def _text(claim: str) -> Markup:
    """The sentence under the title of its form: without naming it again."""
    said = claim.partition(": ")[2] or claim
    return tag("td", said[:1].upper() + said[1:])


def _result(finding: Finding) -> Markup:
    if finding.ok:
        return tag("td", "holds")
    return tag("td", tag("b", "not checked" if finding.broke_off else "does not hold"))


LIMITS = (
    "The page was made by the code that it speaks about. Compare the digest with that of a release, or of a copy whose"
    " source somebody read; the list of files below says how to compute it.",
    "Claims are checked in small federations, by programs that find only what they look for. The security page of the"
    " documentation says what they do not show.",
    "It speaks about the software: not about the machine, its administrators, the parameters that you choose, or what a"
    " mean itself tells.",
    "Anybody can write such a page. To be sure, run the audit yourself: secea audit.",
)


def _limits() -> Markup:
    return section("What this page is not", None, tag("ul", [tag("li", each) for each in LIMITS]))


def _files(here: Installation) -> Markup:
    lead = (
        "SHA-256 of each file. The digest above is that of this list as text: a line for each file, of its hash, two"
        " blanks, and its name, in the order of the names. In the folder of the package: ",
        tag("span", COMMAND, class_="print"),
    )
    rows = [[name, tag("td", tag("span", digest, class_="print"))] for name, digest in here.files.items()]
    return section(
        f"The {len(rows)} files", lead, tag("details", tag("summary", "All of them"), table([], rows, "said"))
    )


COMMAND = (
    "find . -type f ! -path '*/__pycache__/*' ! -name '*.so' ! -name '*.pyd' ! -name '*.o' | sed 's#^./##'"
    " | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum"
)
"""Makes the digest, in the package's folder, without the package."""


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
