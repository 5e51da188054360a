"""Draws the pictures of the documentation: `python docs/pictures/draw.py`. Plain SVG, in light and dark, no script."""

from __future__ import annotations

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
RHO = "\N{GREEK SMALL LETTER RHO}"
STYLE = """
:root { color-scheme: light dark }
.card { fill: #fbfaf7; stroke: #d9d5cb }
.box { fill: #ffffff; stroke: #8a8578 }
.own { fill: #d8efe9; stroke: #1b7f6b }
.noise { fill: #f6e3da; stroke: #b5552b }
.server { fill: #e6e4f4; stroke: #5d55a6 }
.note { fill: #f1efe8; stroke: none }
.key0 { fill: #1b7f6b; stroke: #1b7f6b }
.key1 { fill: #b5552b; stroke: #b5552b }
.key2 { fill: #5d55a6; stroke: #5d55a6 }
.key3 { fill: #8a6d1d; stroke: #8a6d1d }
.line { stroke: #4a4740; fill: none }
.thin { stroke: #b9b4a7; fill: none }
.head { fill: #4a4740 }
text { font: 14px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #23211d }
.small { font-size: 12px }
.faint { fill: #6d685c }
.strong { font-weight: 600 }
.mono { font-family: ui-monospace, "Liberation Mono", monospace; font-size: 12px }
@media (prefers-color-scheme: dark) {
  .card { fill: #1f2226; stroke: #3a3e45 }
  .box { fill: #2a2e34; stroke: #8d929b }
  .own { fill: #17443b; stroke: #56b8a2 }
  .noise { fill: #4b2c1e; stroke: #dc8a63 }
  .server { fill: #322f55; stroke: #9f98e6 }
  .note { fill: #292d33 }
  .key0 { fill: #56b8a2; stroke: #56b8a2 }
  .key1 { fill: #dc8a63; stroke: #dc8a63 }
  .key2 { fill: #9f98e6; stroke: #9f98e6 }
  .key3 { fill: #d3b453; stroke: #d3b453 }
  .line { stroke: #c3c7ce }
  .thin { stroke: #555a63 }
  .head { fill: #c3c7ce }
  text { fill: #e8e9eb }
  .faint { fill: #a4a9b2 }
}
"""


class Picture:
    """A drawing that is written when it is done."""

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.name, self.title, self.width, self.height = name, title, width, height
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> None:
        """One line or several, the first one at y."""
        for i, line in enumerate(words.split("\n")):
            self.parts.append(
                f'<text x="{x:g}" y="{y + 17 * i:g}" class="{kind}" text-anchor="{anchor}">{escape(line)}</text>'
            )

    def box(self, x: float, y: float, w: float, h: float, words: str = "", kind: str = "box", text: str = "") -> None:
        """A box with words in its middle."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" class="{kind}"/>')
        if words:
            self.text(x + w / 2, y + h / 2 + 5 - 8.5 * words.count("\n"), words, text)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A line."""
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A line with a head at its end."""
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="line" marker-end="url(#head)"/>')

    def key(self, x: float, y: float, number: int) -> None:
        """A small key: all owners of an entity have the same one."""
        bow = f'<circle cx="{x + 4:g}" cy="{y:g}" r="3.2" fill="none" stroke-width="2.2"/>'
        blade = f'<path d="M{x + 7.5:g} {y:g}H{x + 17:g}M{x + 13:g} {y:g}v4M{x + 16:g} {y:g}v4" stroke-width="2.2"/>'
        self.parts.append(f'<g class="key{number}">{bow}{blade}</g>')

    def write(self) -> None:
        """The file."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        marker = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        head = f'<defs>{marker}<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>'
        card = f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="10" class="card"/>'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(self.title)}">',
            f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", head, card, *self.parts, "</svg>",
        ]  # fmt: skip
        (HERE / f"{self.name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


LANES = ["client n", "server", "every other client"]
Step = tuple[str, str, str] | tuple[str, str]
"""(from, to, what is sent); (lane, what it does); ("", a heading)."""


def sequence(name: str, title: str, lanes: list[str], steps: list[Step], gap: int = 250) -> None:
    """Who sends what to whom, from top to bottom."""
    left, height = 120, 74
    heights = []
    for step in steps:
        heights.append(height)
        height += 34 + 17 * step[-1].count("\n") + (12 if step[0] == "" else 0)
    width = left * 2 + gap * (len(lanes) - 1)
    picture = Picture(name, title, width, height + 10)
    at = {lane: left + gap * i for i, lane in enumerate(lanes)}
    for lane, x in at.items():
        picture.line(x, 52, x, height, "thin")
        kind = "server" if "erver" in lane else "own" if lane == lanes[0] else "box"
        picture.box(x - 95, 16, 190, 34, lane, kind, "strong")
    for step, y in zip(steps, heights, strict=True):
        lines = step[-1].count("\n") + 1
        if step[0] == "":
            picture.box(12, y + 2, width - 24, 26, "", "note")
            picture.text(24, y + 20, step[-1], "strong small", "start")
        elif len(step) == 3:
            picture.text((at[step[0]] + at[step[1]]) / 2, y + 12, step[-1], "small")
            end, sign = y + 17 * lines + 2, 1 if at[step[1]] > at[step[0]] else -1
            picture.arrow(at[step[0]] + 2 * sign, end, at[step[1]] - 3 * sign, end)
        else:
            wide = max(len(line) for line in step[-1].split("\n")) * 6.3 + 20
            start = min(max(at[step[0]] - wide / 2, 8), width - wide - 8)
            picture.box(start, y - 2, wide, 10 + 17 * lines, step[-1], "note", "small faint")
    picture.write()


def idea() -> None:
    """Three tables, one server, means; whoever owns an entity has its key."""
    picture = Picture(
        "idea", "Three organisations, one server: all owners of an entity share a key, and only they read its mean",
        840, 386,
    )  # fmt: skip
    means = {"aspirin": "1.0  2.0", "codeine": "0.5  3.0", "ibuprofen": "2.0 -1.0", "warfarin": "-3.0  0.2"}
    keys = {entity: number for number, entity in enumerate(means)}
    owners = [
        ("hospital A", {"aspirin": "0.5  1.0", "ibuprofen": "2.0 -1.0"}),
        ("hospital B", {"aspirin": "1.5  3.0", "codeine": "0.0  4.0"}),
        ("hospital C", {"codeine": "1.0  2.0", "warfarin": "-3.0  0.2"}),
    ]
    picture.text(130, 28, "what each one has", "small faint")
    picture.text(420, 28, "what the server sees", "small faint")
    picture.text(710, 28, "what each one gets", "small faint")
    picture.box(305, 46, 230, 276, "", "server")
    picture.text(420, 70, "server", "strong")
    for i, (owner, have) in enumerate(owners):
        y = 46 + 97 * i
        for x, rows in ((30, have), (610, {entity: means[entity] for entity in have})):
            picture.box(x, y, 200, 82, "", "own")
            picture.text(x + 100, y + 21, owner, "strong small")
            for j, (entity, values) in enumerate(rows.items()):
                picture.key(x + 12, y + 39 + 22 * j, keys[entity])
                picture.text(x + 38, y + 44 + 22 * j, entity, "small", "start")
                picture.text(x + 186, y + 44 + 22 * j, values, "mono", "end")
        picture.arrow(232, y + 41, 302, y + 41)
        picture.arrow(537, y + 41, 607, y + 41)
    for i, line in enumerate(["9f 3c e1 07 b2 58", "41 aa 06 7d 90 f3", "c8 15 6b e9 34 0d", "72 dd 5f 81 1a c6"]):
        picture.text(330, 106 + 24 * i, f"slot {i + 1}", "small faint", "start")
        picture.text(512, 106 + 24 * i, line, "mono faint", "end")
    picture.text(420, 222, "the size of the union,\nwho takes part,\nsizes and times of messages", "small")
    picture.text(420, 296, "no name, no vector, no count", "small strong")
    picture.text(
        420,
        348,
        "All owners of an entity, and nobody else, share a key for it. Nobody hands it out, and nobody sees\n"
        "who has it. To all who do not have it, even together, a row is random numbers.",
        "small",
    )
    picture.write()


def logo() -> None:
    """Two sets that overlap."""
    rings = "".join(f'<circle cx="{x}" cy="12" r="7" fill="none" stroke="#fff" stroke-width="2.4"/>' for x in (9, 15))
    back = '<rect width="24" height="24" rx="5" fill="#1b7f6b"/>'
    text = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">{back}{rings}</svg>\n'
    (HERE / "logo.svg").write_text(text, encoding="utf-8")


def row() -> None:
    """What becomes of one slot, from its owners' numbers to their mean."""
    picture, rho = Picture("row", "One slot in one round: from its owners' numbers to their mean", 840, 482), RHO

    def step(y: int, number: int, words: str) -> None:
        picture.box(24, y - 20, 28, 28, str(number), "server", "strong")
        picture.text(64, y, words, "strong", "start")

    step(40, 1, "Owners A and B put their numbers under the entity's key, then under a blinding")
    picture.box(64, 56, 238, 40, f"A:  {rho} · (C·a + G)\ncount: {rho}", "own", "small")
    picture.box(314, 56, 238, 40, f"B:  {rho} · (C·b + G)\ncount: {rho}", "own", "small")
    picture.box(564, 56, 238, 40, "X, which does not own it:  0\ncount: 0", "box", "small")
    known = f"{rho}: random, known to all clients and not to the server. C = lcm(1, ..., N), a multiple of every count."
    picture.text(
        64, 116, f"G: random numbers from the entity's key, new in every round.\n{known}", "small faint", "start"
    )
    step(172, 2, "Everybody adds masks, to this slot and to all others, and uploads: random numbers")
    for i, words in enumerate(("A's row + m₁ + m₂", "B's row - m₁ + m₃", "X's row - m₂ - m₃")):
        picture.box(64 + 250 * i, 188, 238, 34, words, "noise", "small")
    step(260, 3, f"The server adds: the masks cancel. It divides by the count, which it has only times {rho}")
    picture.box(64, 276, 330, 40, f"{rho} · (C·(a + b) + 2·G)\ncount: 2·{rho}", "server", "small")
    picture.arrow(398, 296, 426, 296)
    picture.box(430, 276, 372, 40, "C·(a + b)/2 + G + noise\nthe same bytes to everybody", "server", "small")
    step(356, 4, "Everybody checks it. A and B take G away, and have the mean")
    picture.box(64, 372, 488, 40, "A and B:  (a + b)/2, off by less than the resolution", "own", "small")
    picture.box(564, 372, 238, 40, "X, without the key:\nrandom numbers", "noise", "small")
    picture.text(
        64,
        434,
        "A row also has a check, by which every client sees that the server added and divided rightly, and a mark,\n"
        "by which it sees that a slot that is called empty is empty. The noise comes from T+D+1 clients, and hides\n"
        "by what was divided: neither A nor B learns how many owners there are.",
        "small faint",
        "start",
    )
    picture.write()


def shares() -> None:
    """From a row of numbers to what one client gets of it."""
    picture = Picture(
        "shares", "A row of numbers becomes blocks, then a polynomial, then one share for each client", 840, 500
    )

    def step(y: int, number: int, words: str) -> None:
        picture.box(24, y - 20, 28, 28, str(number), "server", "strong")
        picture.text(64, y, words, "strong", "start")

    step(40, 1, "A row of d numbers, and a 1, is cut into K blocks of L integers modulo 2^61 - 1")
    for k in range(3):
        picture.box(64 + 150 * k, 58, 146, 34, f"block {k + 1}", "own", "small")
    picture.text(530, 80, "here K = 3; zeros fill the last block", "small faint", "start")
    step(140, 2, "A polynomial of degree K+T-1 goes through the blocks and T random values")
    for k in range(5):
        words, kind = (f"at {k + 1}\nblock {k + 1}", "own") if k < 3 else (f"at {k + 1}\nnoise", "noise")
        picture.box(64 + 90 * k, 158, 82, 40, words, kind, "small")
    picture.text(530, 175, "beta = 1, ..., K+T; here T = 2.", "small faint", "start")
    picture.text(530, 192, "One for each coordinate of a block", "small faint", "start")
    step(246, 3, "Client v gets its value at a point of its own: a share")
    for place, v in enumerate((0, 1, 2, 3, 4, 5, 9)):
        x = 64 + 90 * place + 30 * (v == 9)
        picture.box(x, 264, 82, 40, f"at {6 + v}\nclient {v}", "box", "small")
    picture.text(619, 289, "...", "strong")
    picture.text(
        64, 328, "alpha = K+T+1, ... Any T shares are random numbers, whatever was shared;", "small faint", "start"
    )
    picture.text(64, 345, "so T of them travel as a 32-byte seed.", "small faint", "start")
    step(392, 4, "Each client adds the shares of all contributors, and multiplies with its share of a query")
    picture.box(64, 410, 190, 40, "sum of shares\ndegree K+T-1", "box", "small")
    picture.text(272, 435, "×", "strong")
    picture.box(290, 410, 210, 40, "share of a query\ndegree K+T-1", "box", "small")
    picture.text(518, 435, "=", "strong")
    picture.box(
        536, 410, 270, 40, "share of the sum that was asked for,\nand of its count; degree 2(K+T-1)", "own", "small"
    )
    picture.text(
        64,
        476,
        "need = 2(K+T)-1 answers determine it: 9 here. The others are checks, or may be lost.",
        "small faint",
        "start",
    )
    picture.write()


def header() -> None:
    """The 64 bytes that every message begins with."""
    picture = Picture("header", "The 64-byte header of every message", 840, 218)
    picture.text(
        24,
        30,
        "64 bytes before every message, in the clear and authenticated; all but the chunk's number make the key",
        "small",
        "start",
    )
    rows = [
        [("version", 1), ("kind", 1), ("sender", 2), ("receiver", 2), ("attempt", 2), ("epoch", 4), ("weights", 4)],
        [("round", 4), ("sequence", 4), ("chunk", 4), ("chunks", 4)],
        [("context: what the parties agree on so far", 16)],
        [("salt: new in every message", 16)],
    ]
    for i, row in enumerate(rows):
        x, y = 76.0, 48 + 40 * i
        picture.text(64, y + 22, str(16 * i), "mono faint", "end")
        for words, size in row:
            w = size * 46.0
            kind = "own" if words.startswith(("context", "salt")) else "noise" if words == "chunk" else "box"
            short = {"version": "ver."}.get(words, words)
            picture.box(x, y, w - 4, 34, short, kind, "small")
            x += w
    picture.write()


def modules() -> None:
    """Which folder may import which: those above know nothing of those below."""
    picture = Picture("modules", "The folders of secea, in layers; imports point upward", 840, 664)
    layers = [
        ("beside all of them", "", "box", ["errors", "params", "table, names"]),
        ("arithmetic/", "pure mathematics", "box", ["field, streams", "lagrange", "ristretto", "paillier", "_kernels"]),
        ("wire/", "bytes, keys, what is saved", "box", ["messages", "keys, link", "randomness", "snapshot"]),
        ("steps/", "one section of the protocol each", "own", ["oprf", "union", "masks", "means"]),
        ("party/", "state machines that name no form", "own", ["phases, form", "session", "client", "server"]),
        ("forms/keyed/", "a table of phases, two parts", "own", ["form", "names", "client", "masking", "server"]),
        ("forms/paillier/", "the paper's, as a table too", "own", ["form", "sharing", "client", "retrieval", "server"]),
        ("oracles/", "a form in plain integers, on one page", "own", ["keyed", "paillier"]),
        ("engines/", "sockets, clocks, files", "noise", ["driver, host", "federation", "nvflare", "flower"]),
        ("for people", "", "noise", ["adapters/", "learn/", "report/", "audit/", "plan", "cli, demo/"]),
    ]  # fmt: skip
    for i, (folder, what, kind, names) in enumerate(layers):
        y = 24 + 64 * i
        picture.text(24, y + (20 if what else 27), folder, "small strong", "start")
        picture.text(24, y + 37, what, "small faint", "start")
        w = 560 / len(names)
        for j, name in enumerate(names):
            picture.box(256 + w * j, y, w - 8, 42, name, kind, "small")
        if i > 1 and folder != "forms/paillier/":  # no form knows another one
            picture.arrow(532, y - 2, 532, y - 20)
    picture.write()


def one_round() -> None:
    """One round, and where it is protected."""
    sequence(
        "round", "One round: who sends what to whom", LANES,
        [
            ("", "ready, upload"),
            ("server", "client n", "begin: train"),
            ("client n", "train"),
            ("client n", "server", "ready; under masks: did my names change?"),
            ("server", "client n", "begin: upload, for this union, these members"),
            ("client n", "own slots: numbers under the entity's key;\nother slots: zeros; masks over all of them"),
            ("client n", "server", "upload: one row for each slot of the union"),
            ("every other client", "server", "upload; some send a seed of noise with it"),
            ("", "agree, open: only where clients may drop out (D ≥ 1)"),
            ("server", "every other client", "begin: whose upload came whole"),
            ("every other client", "server", "vote: my signature under that"),
            ("server", "every other client", "the votes of N-D clients"),
            ("every other client", "server", "opening: for each client a share\nof one of its two masks, never both"),
            ("", "means"),
            ("server", "adds: the masks cancel; divides each sum\nby its count, both blinded; adds the noise"),
            ("server", "client n", "means: the same bytes to everybody"),
            ("client n", "check every slot, also those of others;\nown slots: take the key away, and read the mean"),
        ],
        300,
    )  # fmt: skip


def setup() -> None:
    """Before the first round."""
    sequence(
        "setup", "Set-up: who sends what to whom", LANES,
        [
            ("", "hello: who is there"),
            ("client n", "server", "hello: a key, signed by the identity in the roster"),
            ("server", "client n", "hellos of all: each is checked against the roster"),
            ("", "commit, deal: a key for names that nobody holds; once, all clients"),
            ("client n", "server", "hash of commitments; then these, with a proof, signed"),
            ("client n", "server", "a share of my part of the key, sealed for each client"),
            ("server", "every other client", "commitments and shares of all"),
            ("every other client", "check every share; add them up:\nT of the sums tell nothing about the key"),
            ("", "list, confirm, evaluate: the key of each entity; once for each name"),
            ("client n", "blind each name; pad to the public bound; shuffle"),
            ("client n", "server", "list of points, sealed; its hash, signed for all"),
            ("every other client", "server", "confirm: we have all seen the same hashes"),
            ("server", "every other client", "to T+1 of them, the holders: all lists"),
            ("every other client", "server", "each point times my share of the key, sealed for client n"),
            ("server", "client n", "the answers of T+1 holders"),
            ("client n", "check; take the blinding away; hash:\nthe same key for all owners, and for nobody else"),
            ("", "secret, table: the union; whenever members or entities change"),
            ("client n", "server", "part of the clients' secret, key for masks, sealed for each"),
            ("server", "client n", "parts of the others (the server cannot open them)"),
            ("client n", "server", "table: tags times random weights, under masks"),
            ("server", "the masks cancel in the sum:\nthe tags of the union, not who has them"),
            ("server", "client n", "tags, sorted, the same to everybody: the slots"),
            ("", "batch: mask keys for the next rounds; only where clients may drop out (D ≥ 1)"),
            ("client n", "server", "for each round two masks: a public key, a hash, signed"),
            ("client n", "server", "shares of what lies behind them, sealed for each client"),
            ("server", "every other client", "keys, hashes and shares of all"),
        ],
        360,
    )  # fmt: skip


def paper_round() -> None:
    """A round of the paper's form."""
    sequence(
        "paper-round", "One round of the paper's form: who sends what to whom", LANES,
        [
            ("", "first exchange: share"),
            ("client n", "train; put (row, 1) in the order of the union,\nand 0 in all other places"),
            ("client n", "server", "share of all rows, sealed for each client"),
            ("server", "opens nothing: says whose shares count"),
            ("server", "every other client", "the contributors; then the shares of all of them"),
            ("", "second exchange: answer"),
            ("every other client", "add the shares of all contributors; multiply\nwith shares of client n's queries"),
            ("every other client", "server", "answers under client n's Paillier key,\nwith a proof for whom they are"),
            ("server", "cannot decrypt; multiplies by r, adds psi and p·R\nunder the encryption"),
            ("server", "client n", "for each query the masked answers of all"),
            ("client n", "check the proofs; decrypt; interpolate:\nr × sum and r × count; divide"),
        ],
        310,
    )  # fmt: skip


def paper_setup() -> None:
    """Before the first round of the paper's form."""
    sequence(
        "paper-setup", "Set-up of the paper's form: who sends what to whom", LANES,
        [
            ("", "secret: who is there"),
            ("client n", "server", "hello: a key and a Paillier key, signed by the identity"),
            ("server", "client n", "hellos of all: each is checked against the roster"),
            ("client n", "server", "part of the clients' secret, sealed for each"),
            ("server", "client n", "whose parts count; then these, still sealed"),
            ("", "table: which entities there are"),
            ("client n", "server", "table: hashed names times random weights, masked"),
            ("server", "the masks cancel in the sum:\nthe union of hashed names, not who has them"),
            ("server", "client n", "tags: the union, sorted"),
            ("", "query: what each one wants to know"),
            ("client n", "put each own entity into one of its buckets;\none query for each bucket, some are dummies"),
            ("client n", "server", "queries, as shares, sealed for each client"),
            ("server", "every other client", "whose queries count; then the queries"),
        ],
        350,
    )  # fmt: skip


def engine() -> None:
    """A round as an engine carries it."""
    yours, site, carrier, server = "your two functions", "a client's site", "the engine", "the server's side"
    sequence(
        "engine", "One round on an engine", [yours, site, carrier, server],
        [
            (server, carrier, "order, sealed: train round r"),
            (carrier, site, "order"),
            (site, "from the server? new?\nwithin the agreed rounds?"),
            (site, yours, "train(means, r)"),
            (yours, site, "table"),
            (site, carrier, "reply: ready"),
            (carrier, server, "reply, or who did not\nreply in time"),
            (server, "somebody is missing:\na union of the others"),
            (server, carrier, "begin: upload"),
            (carrier, site, "begin"),
            (site, "save, encrypted;\nonly then send"),
            (site, carrier, "reply: upload, sealed"),
            (carrier, server, "reply"),
            (server, "add, divide"),
            (server, carrier, "means, the same\nbytes to everybody"),
            (carrier, site, "means"),
            (site, "check every slot;\nkeep own means; save"),
        ],
        220,
    )  # fmt: skip


if __name__ == "__main__":
    for draw in (logo, idea, one_round, setup, row, shares, paper_round, paper_setup, header, engine, modules):
        draw()
