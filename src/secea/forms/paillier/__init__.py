"""The form "paillier": the paper's protocol, with repairs (docs/protocol.md).

`form` has what is public: messages, phases, sizes. `client` and `server` are the parties' parts; `sharing`, `buckets`,
`retrieval` and `correction` are the steps that they take.
"""

from secea.forms.paillier.form import Paillier

__all__ = ["Paillier"]
