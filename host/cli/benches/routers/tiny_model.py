"""A model's folder as far as a router reads it, at the path of the first argument: a tokenizer trained on a few words."""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

folder = pathlib.Path(sys.argv[1])
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=1000, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
)
tokenizer.train_from_iterator(["You are the assistant of a railway. When does the train leave, from which platform?"], trainer)
saved = json.loads(tokenizer.to_str())
# Simulated engines answer with tokens above those that a prompt needs.
vocabulary = saved["model"]["vocab"]
vocabulary.update({f"\u0120word{number}": number for number in range(len(vocabulary), 4000)})
(folder / "tokenizer.json").write_text(json.dumps(saved))
template = "{% for message in messages %}{{ message.role }}\n{{ message.content }}\n{% endfor %}"
files = {
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "chat_template": template,
    },
    "config.json": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "eos_token_id": 0,
        "bos_token_id": 0,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 2,
        "max_position_embeddings": 8192,
        "vocab_size": len(vocabulary),
    },
    "generation_config.json": {"eos_token_id": 0},
}
for name, content in files.items():
    (folder / name).write_text(json.dumps(content))
