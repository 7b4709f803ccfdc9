"""Texts for the text benches: prose, code, many scripts, emoji, runs of white space. Fixed seeds; standard library only."""
import json
import random
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Letters of scripts, and how long their words are.
SCRIPTS = {"han": ((0x4E00, 0x9FA5), (1, 12)), "kana": ((0x3041, 0x3096), (2, 9)), "hangul": ((0xAC00, 0xD7A3), (1, 6)),
           "cyrillic": ((0x0430, 0x044F), (2, 11)), "greek": ((0x03B1, 0x03C9), (2, 9)), "arabic": ((0x0627, 0x064A), (2, 8)),
           "devanagari": ((0x0904, 0x0939), (2, 8)), "latin": ((0x00E0, 0x017F), (2, 9)), "emoji": ((0x1F600, 0x1F64F), (1, 4))}


def prose(size):
    """English that people wrote: the Python reference manual, which every Python carries."""
    from pydoc_data.topics import topics
    return "\n\n".join(topics[name] for name in sorted(topics))[:size]


def code(size):
    files = sorted(path for room in ("engine", "actors", "net", "demo", "bench") for path in (ROOT / room).rglob("*")
                   if path.suffix in (".cpp", ".hpp", ".py"))
    return "\n".join(path.read_text() for path in files)[:size]


def parity_texts():
    """What the parity tests encode: hundreds of short texts chosen to be awkward."""
    with tarfile.open(ROOT / "tests" / "data" / "parity.tar.xz") as pack:
        lines = pack.extractfile("parity/tokenizers/gpt2/corpus_expected.jsonl").read().decode().splitlines()
    return "\n".join(json.loads(line)["text"] for line in lines)


def scripts(size, seed):
    """Words of random letters, script by script, with white space of all kinds between them."""
    draw, parts, length = random.Random(seed), [], 0
    while length < size:
        (first, last), (short, long) = SCRIPTS[draw.choice(list(SCRIPTS))]
        words = ["".join(chr(draw.randint(first, last)) for _ in range(draw.randint(short, long)))
                 for _ in range(draw.randint(3, 12))]
        part = draw.choice([" ", " ", "、", "\u3000", "-"]).join(words) + draw.choice([". ", "。", "!?\n", "\n\n", "\t\t", " " * 9, "\r\n"])
        parts.append(part + str(draw.randint(0, 10**draw.randint(1, 9))))
        length += len(part.encode())
    return "".join(parts)


def mixed():
    """About 1.6 MB: 40 % prose, 35 % code, the rest other scripts and awkward texts, shuffled by paragraphs."""
    blocks = (prose(640_000) + "\n\n" + code(560_000) + "\n\n" + parity_texts() + "\n\n" + scripts(330_000, 1)).split("\n\n")
    random.Random(2).shuffle(blocks)
    return "\n\n".join(blocks)


def prompts(text, count=3000, seed=3):
    """Parts of 10 to 200 characters, all different."""
    draw, found = random.Random(seed), {}
    while len(found) < count:
        begin, length = draw.randrange(len(text) - 200), draw.randint(10, 200)
        found[text[begin:begin + length]] = None
    return list(found)


def single_word(size, seed=4):
    """`size` letters without anything to split at."""
    draw = random.Random(seed)
    return "".join(draw.choices("etaoinshrdlucmfwypvbgkjqxz", weights=range(26, 0, -1), k=size))
