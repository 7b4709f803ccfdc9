#!/usr/bin/env python3
"""Writes smollm2_chats.json: chats and the ids that transformers' apply_chat_template gives for them.

usage: make_smollm2_chats.py FOLDER   (a folder with SmolLM2-Instruct's tokenizer.json and tokenizer_config.json)
Written with transformers 5.24.0.
"""
import json
import pathlib
import sys

from transformers import AutoTokenizer

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "What is 2+2?"}],
    [
        {"role": "user", "content": "Write a haiku about rivers."},
        {"role": "assistant", "content": "Water finds its way\nslow stones, slower mountains\nthe sea forgets names"},
        {"role": "user", "content": "Now in French, s'il te plaît."},
    ],
    [{"role": "system", "content": ""}, {"role": "user", "content": "  leading and trailing spaces  "}],
    [{"role": "user", "content": "法律条文第12条：代码 <b>&amp;</b> 😀\n\n\ttabs"}],
    [{"role": "user", "content": ""}],
    [
        {"role": "system", "content": "A"},
        {"role": "user", "content": "B"},
        {"role": "assistant", "content": "C"},
        {"role": "user", "content": "D 3.14159"},
        {"role": "assistant", "content": "E"},
    ],
]

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
rows = []
for messages in CHATS:
    for prompt in (True, False):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=prompt, return_dict=False)
        rows.append({"messages": messages, "add_generation_prompt": prompt, "text": text, "ids": list(ids)})
lines = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
pathlib.Path(__file__).with_name("smollm2_chats.json").write_text("[\n" + lines + "\n]\n")
