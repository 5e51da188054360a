"""For the site: pages that lie at the root of the repository, and links that lead there.

Pages are written for readers of the repository: a link is relative to its file. On the site the root and docs/ are one
folder, so that links across the two are put right here, and what they lead to is added.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ADDED = (
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/*.ipynb", "examples/*/*", "examples/*/app/*",
    "fuzz/README.md", "packaging/*", "packaging/*/*", "vectors/README.md", "src/secea/retrieval/*.py",
    "src/secea/engines/meters.py", "src/secea/learn/recommend.py",
)  # fmt: skip
"""What pages link to outside of docs/."""
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of docs/."""
    for path in sorted(path for pattern in ADDED for path in ROOT.glob(pattern) if path.is_file()):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository become links of the site."""
    own = page.file.src_uri
    at_root = not (Path(config.docs_dir) / own).exists()

    def moved(link: re.Match[str]) -> str:
        in_docs = "" if at_root else "docs"
        target = posixpath.normpath(posixpath.join(in_docs, posixpath.dirname(own), link[2]))
        target = target.removeprefix("docs/")
        target = next((name for name in (target, f"{target}/README.md", f"{target}/index.md") if name in files), target)
        return link[1] + posixpath.relpath(target, posixpath.dirname(own) or ".")

    return LINK.sub(moved, markdown)


__all__ = ["on_files", "on_page_markdown"]
