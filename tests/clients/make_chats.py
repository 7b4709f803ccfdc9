#!/usr/bin/env python3
"""Writes tests/data/chats.tar.xz: for each golden model a tokenizer that fits its 320 ids, a chat template of the parity
data, and chats with the ids that transformers' apply_chat_template gives for them.

usage: make_chats.py TEMPLATES OUT   (the parity data's chat_templates folder; the pack to write)
Written with transformers 5.24.0 and tokenizers 0.23.3. A second run writes the same bytes.
"""
import json
import pathlib
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pack import write_pack

IDS = 320
TEXTS = ["the weather in Paris is the same as in Rome", "system user assistant tool content function name arguments",
         '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}', "hello there, hello"]
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

# model: template, bos, eos, further special tokens, added tokens that are not special
SHAPES = {
    "llama_gqa_tied": ("hermes_tools", "<|begin_of_text|>", "<|im_end|>", ["<|im_start|>"], []),
    "llama3_rope": ("llama3_tools", "<|begin_of_text|>", "<|eot_id|>",
                    ["<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>"], []),
    "qwen2_bias": ("qwen25_tools", None, "<|im_end|>", ["<|endoftext|>", "<|im_start|>"], ["<tool_call>", "</tool_call>"]),
    "qwen3_qknorm": ("qwen3_thinking", None, "<|im_end|>", ["<|endoftext|>", "<|im_start|>"],
                     ["<tool_call>", "</tool_call>", "<think>", "</think>"]),
    "mistral_swa": ("mistral_tools", "<s>", "</s>", ["[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
                    "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"], []),
}


def byte_level(split, added):
    """As Llama 3 and Qwen: bytes in a printable alphabet, merges within words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=IDS - added, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return tokenizer


def byte_fallback():
    """As Llama 2 and Mistral: spaces are a letter, what has no piece falls back to bytes."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{i:02X}>": 3 + i for i in range(256)}}
    merges = []
    for piece in ["\u2581", *"aehilnorstuw"]:
        vocabulary[piece] = len(vocabulary)
    for left, right in [("\u2581", "t"), ("h", "e"), ("\u2581t", "he"), ("e", "r"), ("a", "t"), ("i", "n"), ("\u2581", "a"),
                        ("u", "s"), ("us", "er"), ("o", "n"), ("\u2581", "w"), ("l", "l"), ("he", "ll"), ("e", "r")]:
        if (left, right) not in merges:
            merges.append((left, right))
            vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def make_tokenizer(model, folder, template):
    _, bos, eos, special, plain = SHAPES[model]
    names = ([bos] if bos else []) + [eos] + special
    if model == "mistral_swa":
        tokenizer = byte_fallback()
    else:
        tokenizer = byte_level(QWEN2_SPLIT if model.startswith("qwen") else LLAMA3_SPLIT, len(names) + len(plain))
    if model.startswith("qwen"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(names)
    tokenizer.add_tokens(plain)
    if bos:  # what a completion's prompt gets; a chat's template writes its own
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    assert tokenizer.get_vocab_size() <= IDS, (model, tokenizer.get_vocab_size())
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, **({"bos_token": bos} if bos else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template)
    made = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token=eos, bos_token=bos)
    made.chat_template = template
    return made


TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather at a place", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "description": "a city"}}, "required": ["place"]}}}]
CALL = [{"role": "user", "content": "How is the weather in Paris?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "abc123def", "type": "function",
             "function": {"name": "weather", "arguments": {"place": "Paris", "days": 2, "fine": True}}}]},
        {"role": "tool", "tool_call_id": "abc123def", "name": "weather", "content": "18 degrees, sun"}]
USER = {"role": "user", "content": "Hello there"}
TALK = [USER, {"role": "assistant", "content": "Hello. What can I do?"}, {"role": "user", "content": "Sing 3.14 songs!"}]
CHATS = [
    {"messages": [USER]},
    {"messages": [{"role": "system", "content": "You are terse."}, USER]},
    {"messages": TALK},
    {"messages": TALK, "add_generation_prompt": False},
    {"messages": TALK[:2], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [{"role": "user", "content": "  spaces \n\n\tand tabs  "}]},
    {"messages": [{"role": "user", "content": "\u6cd5\u5f8b\u6761\u6587\u7b2c12\u6761 \uff23\uff2f\uff24\uff25 cafe\u0301 \U0001f600 "
                   "\u0928\u092e\u0938\u094d\u0924\u0947 <b>&amp;</b> \"quoted\" \\n"}]},
    {"messages": [{"role": "user", "content": "who am I?", "name": "Ann"}]},
    {"messages": [USER], "tools": TOOLS},
    {"messages": [{"role": "system", "content": "Use tools."}, USER], "tools": TOOLS},
    {"messages": CALL, "tools": TOOLS},
    {"messages": CALL + [{"role": "assistant", "content": "It is warm."}, {"role": "user", "content": "And Rome?"}], "tools": TOOLS},
    {"messages": [USER, {"role": "assistant", "content": "Done.", "reasoning_content": "Let me think."},
                  {"role": "user", "content": "Again"}]},
    {"messages": [USER, {"role": "assistant", "content": "Done.", "reasoning_content": "Let me think."}],
     "add_generation_prompt": False},
    {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [{"role": "user", "content": ""}]},
    {"messages": [{"role": "assistant", "content": "I begin"}, USER]},
]


def expected(tokenizer, chat):
    arguments = {"add_generation_prompt": True, **chat}
    kwargs = arguments.pop("chat_template_kwargs", {})
    messages = arguments.pop("messages")
    try:
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **arguments, **kwargs)
    except Exception as error:  # a template that refuses
        return {"error": str(error)}
    return {"ids": list(ids)}


def main(templates, out):
    files = {}
    for model, (template_name, *_) in SHAPES.items():
        template = (pathlib.Path(templates) / template_name / "template.jinja").read_text()
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(model, pathlib.Path(folder), template)
            for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                files[f"chats/{model}/{name}"] = (pathlib.Path(folder) / name).read_bytes()
        rows = []
        for chat in CHATS:
            if model == "llama3_rope":  # its template asks for the date otherwise
                chat = {**chat, "chat_template_kwargs": {**chat.get("chat_template_kwargs", {}), "date_string": "26 Jul 2024"}}
            rows.append({"request": chat, **expected(tokenizer, chat)})
        print(model, len(rows), "chats,", sum("error" in row for row in rows), "refused by the template")
        files[f"chats/{model}/chats.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    write_pack(out, files)


if __name__ == "__main__":
    main(*sys.argv[1:])
