#!/usr/bin/env python3
"""Writes unicode_tables.cpp: where the reference tokenizers' Unicode tables differ from Unicode 14.

The `tokenizers` library mixes tables of several ages (its regular expressions and Rust's own are newer than the
libraries we link, its normalizers and punctuation are older). What it does is asked of the library itself, one code
point at a time. Needs Python 3.11 (its unicodedata is Unicode 14) and `tokenizers`; run again after an update.
"""
import pathlib
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So".split()


def matched(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for i in range(0, len(CODE_POINTS), 4096):
        text = "".join(map(chr, CODE_POINTS[i : i + 4096]))
        for piece, _ in split.pre_tokenize_str(text):
            found.update(map(ord, piece))
    return found


def cut_by(pre_tokenizer):
    return {c for c in CODE_POINTS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c))) == 2}


def ours(prefix):
    return {c for c in CODE_POINTS if unicodedata.category(chr(c)).startswith(prefix)}


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, code_points):
    rows = [f"{{0x{a:04X}, 0x{b:04X}}}" for a, b in ranges(code_points)]
    return f"const std::vector<CodeRange>& {name}() {{\n    static const std::vector<CodeRange> table = {{" + ", ".join(rows) + "};\n    return table;\n}\n"


def changed_by(normalizer):
    return {c: r for c in CODE_POINTS if (r := normalizer.normalize_str(chr(c))) != chr(c)}


newer = [(name, a, b) for name in CATEGORIES for a, b in ranges(matched("\\p{%s}" % name) - ours(name))]
rows = ", ".join(f'{{"{name}", 0x{a:04X}, 0x{b:04X}}}' for name, a, b in newer)
lower = changed_by(normalizers.Lowercase())
pairs = ", ".join(f"{{0x{c:04X}, 0x{ord(r):04X}}}" for c, r in sorted(lower.items()) if r != chr(c).lower() and len(r) == 1)
ascii_symbols = {c for c in range(128) if chr(c) in "$+<=>^`|~"}
all_punctuation = ours("P") | matched("\\p{P}")
punctuation = cut_by(pre_tokenizers.Punctuation()) - ascii_symbols
# Our libraries may know characters that neither Python's nor the reference's tables do.
decomposed = {c for c in CODE_POINTS if unicodedata.normalize("NFKD", chr(c)) != chr(c)} | (matched("\\p{L}") - ours("L"))
kept = decomposed - set(changed_by(normalizers.NFKD()))
bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
nonspacing = ours("Mn") | matched("\\p{Mn}")
accents_gone = {c for c in ours("M") | matched("\\p{M}") if bert.normalize_str("a" + chr(c)) == "a"}
marks_kept = (ours("M") | matched("\\p{M}")) - set(changed_by(normalizers.StripAccents()))

out = f"""// Made by make_unicode_tables.py; do not edit.
#include "engine/text/unicode_tables.hpp"

namespace attune {{

const std::vector<NewerCategory>& newer_categories() {{
    static const std::vector<NewerCategory> table = {{{rows}}};
    return table;
}}

const std::vector<std::pair<char32_t, char32_t>>& newer_lower_case() {{
    static const std::vector<std::pair<char32_t, char32_t>> table = {{{pairs}}};
    return table;
}}

{table("newer_numbers", cut_by(pre_tokenizers.Digits(individual_digits=True)) - ours("N"))}
{table("punctuation_not_in_reference", all_punctuation - punctuation)}
{table("punctuation_only_in_reference", punctuation - ours("P"))}
{table("marks_not_in_reference", marks_kept)}
{table("accents_not_in_reference", nonspacing - accents_gone)}
{table("accents_only_in_reference", accents_gone - ours("Mn"))}
{table("compatibility_not_in_reference", kept)}
}}  // namespace attune
"""
pathlib.Path(__file__).with_name("unicode_tables.cpp").write_text(out)
