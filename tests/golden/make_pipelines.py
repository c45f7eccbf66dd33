# SPDX-License-Identifier: Apache-2.0
"""What the pipelines "fill-mask" and "text-classification" of transformers say about texts, for two toys
of BERT.

    python make_pipelines.py       writes use/pipelines.json: vocabulary, both toys (config, tensors by rule
                                   as in families/), texts, results
"""
import json
import pathlib
import tempfile

import torch
import transformers as T

import make_families as F

HERE = pathlib.Path(__file__).parent
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "!", "a", "b", "c", "##s", "##ing", "##ed",
         "the", "to", "be", "or", "not", "that", "is",
         "question", "whether", "it", "noble", "##r", "in", "mind", "suffer", "sling", "and", "arrow", "of",
         "out", "##rage", "##ous", "fortune", "take",
         "arm", "against", "sea", "trouble", "by", "oppo", "end", "them", "die", "sleep", "no", "more", "we",
         "dream", "say", "heart", "##ache", "thousand",
         "natural", "shock", "flesh", "heir", "hund"]
FILL = ["to be or [MASK]", "[MASK] be or not to be", "The slings and [MASK] of outrageous fortune",
        "to [MASK], to [MASK]: no more!",
        "to be[MASK]or not", "a thousand natural shocks that [MASK] is heir to.", "[MASK]",
        "[MASK] [MASK] [MASK]", "xyz [SEP] [MASK] dreams"]
CLASSIFY = ["to be or not to be", "a", "", "The heartache and the thousand natural shocks",
            "xyz [SEP] dreams!", "to die, to sleep. " * 20]


def main():
    torch.set_num_threads(1)
    F.define()
    assert len(WORDS) == F.VOCAB
    bert = F.TOYS["bert"]["config"]
    F.toy("masked", T.BertForMaskedLM, bert)
    F.toy("classifier", T.BertForSequenceClassification,
          dict(bert, id2label={0: "ham", 1: "let", 2: "mac"}, label2id={"ham": 0, "let": 1, "mac": 2}))
    out = {"source": f"transformers {T.__version__}", "vocabulary": WORDS}
    with tempfile.TemporaryDirectory() as temp:
        for name in ("masked", "classifier"):
            t = F.TOYS[name]
            folder = pathlib.Path(temp) / name
            folder.mkdir()
            tensors = F.make_folder(t, folder)
            model = F.load(t, folder)
            (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
            tokenizer = T.BertTokenizerFast(str(folder / "vocab.txt"),
                                            model_max_length=bert["max_position_embeddings"])
            out[name] = {"config": json.loads((folder / "config.json").read_text()), "tensors": tensors}
            if name == "masked":
                pipe = T.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=4)
                results = []
                for text in FILL:
                    got = pipe(text)
                    got = got if isinstance(got[0], list) else [got]
                    results.append({"text": text,
                                    "masks": [[{"id": g["token"], "token": g["token_str"],
                                                "probability": round(g["score"], 7),
                                                               "sequence": g["sequence"]} for g in mask]
                                              for mask in got]})
                out["fill"] = results
            else:
                pipe = T.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
                out["classify"] = [{"text": text,
                                    "classes": [{"label": g["label"], "probability": round(g["score"], 7)}
                                                               for g in pipe([text], truncation=True)[0]]}
                                   for text in CLASSIFY]
    (HERE / "use" / "pipelines.json").write_text(json.dumps(out, separators=(",", ":"),
                                                            ensure_ascii=False).replace('},{"text"',
                                                                                        '},\n{"text"') + "\n")
    print(len(out["fill"]), "texts filled,", len(out["classify"]), "classified")


if __name__ == "__main__":
    main()
