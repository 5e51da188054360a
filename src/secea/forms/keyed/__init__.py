"""The keyed form: owners of an entity share a key for it; one masked upload, one broadcast; nobody is trusted.

Start with `secea.oracles.keyed`, the same mathematics in plain integers on one page. Then `form` (messages, phases,
sizes), `client`, `server`, `numbers` (fixed point, fill, noise) and `shared` (the clients' shared key streams).
"""

from secea.forms.keyed.form import Keyed, Kind

__all__ = ["Keyed", "Kind"]
