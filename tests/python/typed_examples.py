# SPDX-License-Identifier: Apache-2.0
"""What docs/python.md shows under "At a glance", with types where a strict checker wants them. It is checked,
not run (tests/python/test_types.py); the page itself runs (test_docs.py)."""
from typing import Any

import numpy as np
import rapt
from numpy.typing import NDArray

m = rapt.load("SmolLM2-135M-Instruct.Q4_1.gguf", context=4096, cache="q8_0")
a = m.generate("The sky is", max_tokens=40, temperature=0, logprobs=True, seed=1)
finish: str = a.finish
ids: list[int] = a.ids
seconds: float = a.times.answer
choices: dict[str, Any] = a.openai()
for piece in m.stream("The sky is", max_tokens=40):
    print(piece.upper(), piece.id, end="")


async def later() -> None:
    async for piece in m.astream("The sky is"):
        print(piece)


chat = m.chat(system="Be brief.")
print(str(chat("Why is it blue?")), chat.messages)
answers: list[rapt.Answer] = m.batch(["a", "b", "c"], max_tokens=8)
several: list[rapt.Answer] = m.generate("a", samples=3)
E: NDArray[np.float32] = m.embed(["a cat", "a kitten"])
similar: NDArray[np.float32] = E @ E.T
last: NDArray[np.float32] = m.logits("To be, or", last_only=True)
total: float = m.score("To be, or not").total
perplexity: float = m.perplexity("…", chunks=20).value
m.tokenizer.encode("naïve <|im_end|>")
m.tokenizer.encode("<|im_end|>", special=True)
text: str = m.tokenizer.decode([1, 2])
trained: rapt.Tokenizer = rapt.Tokenizer.train("books/", kind="bpe", size=6000)

logits, cache = m.run_with_cache("To be", ["blocks.*.hook_resid_post", "blocks.5.attn.hook_pattern", "z.3"])
shape: tuple[int, ...] = cache["blocks.5.attn.hook_pattern"].shape
norms: list[float] = []


def halve(z: Any, at: rapt.At) -> None:
    z[:, 3] *= 0.5


def seen(x: Any, at: rapt.At) -> None:
    norms.append(float(np.linalg.norm(x)))


steered: rapt.Answer = m.generate("To be", hooks={"blocks.5.attn.hook_z": halve})
m.run_with_hooks("To be", {"blocks.5.attn.hook_z": halve}, watch={"resid_post.*": seen})
e: rapt.Model = m.edited("L11H3:zero", ("resid_post.8:add", np.zeros(576, np.float32)))
print(e.generate("Hello"))
points: rapt.Points = m.points()

att = m.attention("To be, or not to be")
entropy: NDArray[np.float32] = att.stats["entropy"]
att.map(layer=5, head=3, rows=slice(100, 200))
att.heads.columns()
att.sinks()
m.massive("…")
m.lens("…")
m.gates("…")
r: rapt.Report = m.report("To be, or not to be")
r.save("report.html")

rec = rapt.Recipe("llama3", width=256, layers=6, heads=8, kv_heads=2, ffn=768)
layers: int = rec["decoder.layers"]
rec.diff("llama2")
t = rapt.Trainer(rec, data="books/", out="out/llama", steps=2000, batch=12, length=256,
                 optimizer=dict(kind="muon", rate=1e-3), save_every=500)
for s in t:
    if s.step % 200 == 0:
        print(s.step, s.loss, t.judge(batches=20).loss, t.model.generate("Once", max_tokens=20))
t.metrics.columns()
t.run(on_step=lambda s: s.loss < 3, on_saved=print, progress=True)
d = rapt.Data(lambda number: dict(tokens=[number] * 12, lengths=[12]), vocab=512, identity="my-v1")
loss, grads = t.model.gradients([1, 2, 3], [3], [2, 3, 1])
t.optimizer.step(grads)
grad: NDArray[np.float32] = grads["decoder.0.self.q.weight"]
m2 = rapt.Model(rec, seed=0)
m2.weights["decoder.0.self.q.weight"] = np.zeros((256, 256))
m2.save("out/model")
m2.quantize("q4_0", "out/q4.gguf")
tr = rapt.load("opus-mt-de-en")
print(tr.translate(["Ein Hund läuft."], beam=4, alignment=True)[0].alignment)
one: rapt.Translation = tr.translate("Ein Hund läuft.")
found: rapt.lab.Findings = rapt.lab.run("sink", seed=0).findings


@rapt.lab.experiment(name="mine", question="…", claim="…")
def mine(lab: rapt.lab.Lab) -> rapt.lab.Finding:
    return rapt.lab.Finding("a number", 1.0, holds=True)


style: rapt.Adapter = m.adapter("style.gguf", 0.5)
m.generate("a", lora=style, schema={"enum": ["yes", "no"]})
m.stream("a", lora={"style.gguf": 0.5})
m.batch(["a", "b"], lora=["style.gguf", style])
quick: rapt.Model = rapt.load("default", lora="style.gguf", speculate="off")
quicker: rapt.Model = rapt.load("default", draft=quick)
guessed: int = a.times.guessed_tokens
with rapt.serve(m, port=0, lora={"poet": "style.gguf"}, replay_log="answers.jsonl") as server:
    url: str = server.url
