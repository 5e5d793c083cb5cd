"""Links in the documentation lead to files that exist, and to headings that exist in them."""

import os
import re
import urllib.parse

NAME = "links"
LINK = re.compile(r'\]\(<?([^()\s>]+(?:\([^()\s]*\))?)>?(?:\s+"[^"]*")?\)|(?:src|href|srcset)="([^"]+)"')
CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]+`")


def check(tree):
    documents = {path: tree.read(path) for path in tree.files if path.endswith(".md")}
    return check_documents(documents, lambda path: (tree.root / path).exists())


def check_documents(documents, exists):
    failures = []
    for path, text in documents.items():
        prose = INLINE_CODE.sub(blank, CODE_BLOCK.sub(blank, text))
        for match in LINK.finditer(prose):
            wrong = broken(path, match.group(1) or match.group(2), documents, exists)
            if wrong:
                failures.append(f"{path}:{prose.count(chr(10), 0, match.start()) + 1}: {wrong}")
    return failures


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def broken(path, link, documents, exists):
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return None
    target, _, anchor = urllib.parse.unquote(link).partition("#")
    where = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
    if where.startswith(("..", "/")) or not exists(where):
        return f"the link {link} leads nowhere; there is no {where}"
    if anchor and where in documents and anchor not in anchors(documents[where]):
        return f"the link {link} leads nowhere; {where} has no heading #{anchor}"
    return None


def anchors(text):
    """The anchors of a document's headings: lower case, spaces to dashes, punctuation dropped."""
    headings = re.findall(r"^#+\s+(.*?)\s*#*$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def self_test():
    documents = {"docs/a.md": "", "b.md": "# The `run` door!\n"}

    def failures(text):
        everything = {**documents, "docs/x.md": text}
        return check_documents(everything, lambda path: path in everything or path == "docs")

    for good in ("[a](a.md)", "[b](../b.md#the-run-door)", "[w](https://example.org/x)", "[s](#top)\n# Top",
                 "`[no](link.md)`", "```\n[no](link.md)\n```", '<img src="a.md">'):
        assert not failures(good), good
    for bad in ("[a](missing.md)", "[b](../b.md#other)", '<img src="way.svg">', "[c](../../outside.md)", "[s](#top)"):
        assert len(failures(bad)) == 1, bad
