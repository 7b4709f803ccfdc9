"""Where the code and legal modules' text comes from, and how it is split: whole files are held out, never parts.

code: the top level of the running Python's own standard library (PSF licence).
legal: the licence texts in Debian's /usr/share/common-licenses. They may be copied verbatim; that is what they say.
"""
import hashlib
import random
import re
import sysconfig
from pathlib import Path

LICENSES = Path("/usr/share/common-licenses")
# Every version of a family is on one side, because its versions share most of their sentences.
LEGAL_TRAIN = ("Apache-2.0", "BSD", "GFDL-1.2", "GFDL-1.3", "GPL-1", "GPL-2", "GPL-3", "LGPL-2", "LGPL-2.1", "LGPL-3")
LEGAL_HELD_OUT = ("Artistic", "CC0-1.0", "MPL-1.1", "MPL-2.0")
TOPICS = ("warranty", "liability", "patent", "trademark", "termination", "modified versions", "source code",
          "copyright", "distribution", "combined works", "translation", "invariant sections", "contributions",
          "derivative works", "permissions", "conditions", "copies", "license")
CODE_ASK = ("Complete this Python code:\n{t}", "Continue the code:\n{t}", "Write the rest of this Python function:\n{t}")
LEGAL_ASK = ("Draft a clause about {t}.", "Quote a licence clause about {t}.", "What does the licence say about {t}?",
             "Write the legal text on {t}.")


def code_files():
    """(training, held-out) texts. A file's name decides its side, so that the split is the same everywhere."""
    train, held = [], []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        if path.name.startswith(("_", "this.", "antigravity.")):
            continue
        text = path.read_text(encoding="utf-8")
        held_out = hashlib.sha256(path.name.encode()).digest()[0] % 8 == 0
        (held if held_out else train).append(text)
    return train, held


def code_pairs(texts, count, seed):
    """(prompt, answer): a function's first lines and what follows them."""
    functions = []
    for text in texts:
        for body in re.findall(r"^(?:def|class) .*\n(?:(?:[ \t].*)?\n)+", text, re.MULTILINE):
            lines = body.rstrip().split("\n")
            if 6 <= len(lines) <= 24:
                functions.append(lines)
    rng = random.Random(seed)
    pairs = []
    for lines in rng.choices(functions, k=count):
        cut = rng.randint(1, min(4, len(lines) - 2))
        pairs.append((rng.choice(CODE_ASK).format(t="\n".join(lines[:cut])), "\n".join(lines[cut:])))
    return pairs


def paragraphs(text):
    found = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
    return [p for p in found if len(p) >= 80]


def legal_files():
    """(training, held-out) texts, one paragraph a line."""
    return tuple(["\n".join(paragraphs((LICENSES / name).read_text(encoding="utf-8", errors="replace")))
                  for name in names] for names in (LEGAL_TRAIN, LEGAL_HELD_OUT))


def legal_pairs(texts, count, seed):
    """(prompt, answer): a topic that a paragraph mentions and the paragraph."""
    known = []
    for paragraph in "\n".join(texts).split("\n"):
        topic = next((t for t in TOPICS if t in paragraph.lower()), None)
        if topic and len(paragraph) <= 700:
            known.append((topic, paragraph))
    rng = random.Random(seed)
    return [(rng.choice(LEGAL_ASK).format(t=topic), text) for topic, text in rng.choices(known, k=count)]
