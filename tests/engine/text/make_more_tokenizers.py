#!/usr/bin/env python3
"""Tokenizers of kinds that the parity files lack, with what the reference libraries make of the parity texts:

    python make_more_tokenizers.py PARITY OUT     # PARITY: the folder of the parity files, for its texts and helpers

Unigram and WordPiece as tokenizer.json (`tokenizers` 0.23.3), and bare SentencePiece models (`sentencepiece` 0.1.99, as
Debian's library is 0.1.97: later versions take another of two equally likely cuts). Training breaks ties at random, so
a second run gives other vocabularies and the expectations to them.
OUT/more_tokenizers is packed as tests/data/more_tokenizers.tar.xz.
"""
import base64
import io
import json
import os
import re
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as spm_pb2
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

PARITY, OUT = sys.argv[1], os.path.join(sys.argv[2], "more_tokenizers")
sys.path.insert(0, os.path.join(PARITY, "tokenizers"))
import make_tokenizers as mk
import parity_lib as lib
from texts import all_texts

TEXTS = all_texts()


def write_json(folder, name, value):
    os.makedirs(os.path.join(OUT, folder), exist_ok=True)
    with open(os.path.join(OUT, folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))


# ---- tokenizer.json -------------------------------------------------------------------------------------------------

def charsmap(rule):
    lines = [line for t in mk.training_text() for line in t.splitlines() if line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines[:500]), model_writer=model, vocab_size=1500, hard_vocab_limit=False, normalization_rule_name=rule, minloglevel=2)
    proto = spm_pb2.ModelProto.FromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def train_unigram(normalizer, pre, size, specials):
    tok = Tokenizer(models.Unigram())
    base = lib.with_component("normalizer", normalizer)
    tok.normalizer = base.normalizer
    if pre:
        tok.pre_tokenizer = lib.with_component("pre_tokenizer", pre).pre_tokenizer
    lines = [line for t in mk.training_text() for line in t.splitlines() if line.strip()]
    tok.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token="<unk>", show_progress=False))
    return json.loads(tok.to_str())["model"]


def unigram(vocab, unk_id, byte_fallback=False):
    return {"type": "Unigram", "unk_id": unk_id, "vocab": vocab, "byte_fallback": byte_fallback}


def train_word_piece(normalizer, size, specials):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = lib.with_component("normalizer", normalizer).normalizer
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    lines = [line for t in mk.training_text() for line in t.splitlines() if line.strip()]
    tok.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=size, limit_alphabet=220, special_tokens=specials, show_progress=False))
    return json.loads(tok.to_str())["model"]["vocab"]


def bert_normalizer(**changes):
    return {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True, **changes}


def build(nmt_nfkc):
    out = {}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    specials = ["<pad>", "</s>", "<unk>"]
    # T5: SentencePiece's own normalization, runs of spaces become one
    norm = mk.seq({"type": "Precompiled", "precompiled_charsmap": nmt_nfkc}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, key="normalizers")
    model = train_unigram(norm, metaspace, 1500, specials)
    added = [mk.added(i, c) for i, c in enumerate(specials)]
    out["unigram_t5"] = mk.assemble(unigram(model["vocab"], 2), added, norm, metaspace, mk.template([], ["</s>"], {"</s>": 1}), metaspace)
    # Byte tokens for what the vocabulary lacks; the whole text is one piece
    head = [["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0]] + [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    plain = [p for p in model["vocab"] if p[0] not in specials]
    out["unigram_bytes"] = mk.assemble(unigram(head + plain, 0, True), [mk.added(i, p[0]) for i, p in enumerate(head[:3])], mk.SPM_NORMALIZER, None,
                                       mk.template(["<s>"], [], {"<s>": 1}), mk.SPM_DECODER)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    added = [mk.added(i, c) for i, c in enumerate(specials)]
    ids = {c: i for i, c in enumerate(specials)}
    uncased = bert_normalizer()
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    vocab = train_word_piece(uncased, 1500, specials)
    out["bert_uncased"] = mk.assemble({**model, "vocab": vocab}, added, uncased, {"type": "BertPreTokenizer"}, mk.template(["[CLS]"], ["[SEP]"], ids), {"type": "WordPiece", "prefix": "##", "cleanup": True})
    cased = bert_normalizer(lowercase=False, handle_chinese_chars=False)
    vocab = train_word_piece(cased, 1500, specials)
    out["bert_cased"] = mk.assemble({**model, "max_input_chars_per_word": 12, "vocab": vocab}, added, cased, {"type": "BertPreTokenizer"},
                                    {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, {"type": "WordPiece", "prefix": "##", "cleanup": False})
    return out


def write_tokenizers(nmt_nfkc):
    for k, (name, cfg) in enumerate(build(nmt_nfkc).items()):
        write_json(name, "tokenizer.json", cfg)
        tok = Tokenizer.from_str(json.dumps(cfg))
        lib.dump_jsonl(os.path.join(OUT, name, "corpus_expected.jsonl"), lib.corpus_rows(tok, TEXTS))
        rows = lib.stream_rows(tok, TEXTS, 300 + k)
        lib.dump_jsonl(os.path.join(OUT, name, "stream_expected.jsonl"), rows)
        print(name, tok.get_vocab_size(), len(rows))
    norms = [{"type": "Precompiled", "precompiled_charsmap": nmt_nfkc}] + [bert_normalizer(**c) for c in (
        {}, {"lowercase": False}, {"strip_accents": True, "lowercase": False}, {"strip_accents": False}, {"clean_text": False}, {"handle_chinese_chars": False})]
    decs = [{"type": "WordPiece", "prefix": "##", "cleanup": c} for c in (True, False)]
    words = [["hello", "##ing", "world"], ["##a", "b"], ["do", "not", "'", "s", "n't", "."], ["x", " do not", "##.", "!"], []]
    short = [t for tag, t in TEXTS if len(t) < 300]
    os.makedirs(os.path.join(OUT, "components"), exist_ok=True)
    lib.dump_jsonl(os.path.join(OUT, "components", "normalizers.jsonl"), lib.component_rows("normalizer", norms, short))
    lib.dump_jsonl(os.path.join(OUT, "components", "pre_tokenizers.jsonl"), lib.component_rows("pre_tokenizer", [{"type": "BertPreTokenizer"}], short))
    lib.dump_jsonl(os.path.join(OUT, "components", "decoders.jsonl"), lib.component_rows("decoder", decs, lib_decoder_inputs() + words))


def lib_decoder_inputs():
    return mk.DECODER_INPUTS


# ---- SentencePiece --------------------------------------------------------------------------------------------------

def without_prefix(model):
    proto = spm_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.add_dummy_prefix = False
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def write_sentencepiece(name, config, extra, **options):
    """`config`: tokenizer_config.json; `extra`: added tokens after the model's own."""
    lines = [line for t in mk.training_text() for line in t.splitlines() if line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
    model = model.getvalue()
    os.makedirs(os.path.join(OUT, name), exist_ok=True)
    with open(os.path.join(OUT, name, "tokenizer.model"), "wb") as f:
        f.write(model)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    later = without_prefix(model) if not config.get("legacy", True) else sp
    decoder = {str(i): {"content": sp.id_to_piece(i), "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
               for i in range(sp.get_piece_size()) if sp.is_control(i) or sp.is_unknown(i)}
    for k, (content, special) in enumerate(extra):
        decoder[str(sp.get_piece_size() + k)] = {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special}
    write_json(name, "tokenizer_config.json", {**config, "added_tokens_decoder": decoder})

    def encode(text, literal):
        known = {a["content"]: int(i) for i, a in decoder.items() if not (literal and a["special"])}
        if not known:
            return sp.encode(text) if text else []
        pattern = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))))
        ids, at = [], 0
        for m in pattern.finditer(text):
            if m.start() > at:
                ids += (sp if at == 0 else later).encode(text[at:m.start()])
            ids.append(known[m[0]])
            at = m.end()
        if at < len(text):
            ids += (sp if at == 0 else later).encode(text[at:])
        return ids

    rows = []
    for n, (tag, text) in enumerate(TEXTS):
        plain, literal = encode(text, False), encode(text, True)
        special = [sp.bos_id()] * config.get("add_bos_token", True) + plain + [sp.eos_id()] * config.get("add_eos_token", False)
        row = {"n": n, "tag": tag, "text": text, "ids": plain, "ids_special": special}
        if literal != plain:
            row["ids_literal"] = literal
        if not any(str(i) in decoder for i in plain):
            row["decoded_plain"] = sp.decode(plain)
        rows.append(row)
    lib.dump_jsonl(os.path.join(OUT, name, "corpus_expected.jsonl"), rows)
    print(name, sp.get_piece_size(), sum("ids_literal" in r for r in rows), sum("decoded_plain" in r for r in rows))


def main():
    nmt_nfkc = charsmap("nmt_nfkc")
    write_tokenizers(nmt_nfkc)
    chat = [("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False)]
    write_sentencepiece("spm_bpe", {"tokenizer_class": "LlamaTokenizer", "legacy": True}, chat, model_type="bpe", vocab_size=1500, byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, user_defined_symbols=["[INST]", "hello"])
    write_sentencepiece("spm_unigram", {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_eos_token": True}, chat, model_type="unigram", vocab_size=1200, character_coverage=0.98)
    write_sentencepiece("spm_no_prefix", {"tokenizer_class": "GemmaTokenizer", "add_bos_token": False}, [], model_type="bpe", vocab_size=1200, add_dummy_prefix=False, byte_fallback=True,
                        normalization_rule_name="identity", remove_extra_whitespaces=False)


if __name__ == "__main__":
    main()
