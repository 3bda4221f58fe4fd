"""Write the tables of all reference pages again."""

from __future__ import annotations

from scripts._reference import ROOT, pages, renewed

for page in pages():
    before = page.read_text(encoding="utf-8")
    after = renewed(before)
    if after != before:
        page.write_text(after, encoding="utf-8")
        print(f"renewed {page.relative_to(ROOT)}")
