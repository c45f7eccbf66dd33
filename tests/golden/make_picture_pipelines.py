#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers says about files of pictures, for toys of vision/: classes, vectors, and how well labels
describe them.

    python make_picture_pipelines.py     writes use/pictures.json: the vocabulary of the labels, the fields of
                                         each toy's preprocessor_config.json (null: none), results

Pictures are files of images/files.json, opened as transformers.image_utils.load_image does. Labels stand in
the words of pipeline("zero-shot-image-classification"), each read on its own; SigLIP's padded to its context.
"""
import base64
import json
import pathlib
import tempfile
import warnings

import torch
import transformers as T
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers.image_utils import load_image
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import families_vision as V
import make_families as F

HERE = pathlib.Path(__file__).parent
PICTURES = ["jpeg-420", "png-2-8", "png-palette-alpha", "jpeg-grey", "jpeg-cmyk", "png-0-16-adam7",
            "jpeg-line"]
WORDS = ["[UNK]", "[END]", "this", "is", "a", "photo", "of", ".", "cat", "dog", "red", "green", "blue",
         "grey", "house", "tree", "boat", "small", "large", "drawing", "picture", "##s", "##es", "the", "an"]
LABELS = ["a cat", "two dogs", "the large red house", "boat"]
BIT = dict(size=dict(shortest_edge=27), crop_size=dict(height=24, width=24), image_mean=[0.485, 0.456, 0.406],
           image_std=[0.229, 0.224, 0.225])
CLIP = dict(size=dict(shortest_edge=18), crop_size=dict(height=18, width=18))
TOYS = {  # processor, its fields, what its preprocessor_config.json holds
    "vit": (ViTImageProcessorPil, dict(size=dict(height=20, width=20)), None),
    "dinov2": (BitImageProcessorPil, BIT, dict(BIT, image_processor_type="BitImageProcessor")),
    "clip": (CLIPImageProcessorPil, CLIP, dict(CLIP, image_processor_type="CLIPImageProcessorFast")),
    "siglip": (SiglipImageProcessorPil, dict(size=dict(height=18, width=18)),
               dict(image_processor_type="SiglipImageProcessor", size=dict(height=18, width=18))),
}


def tokenizer(vocabulary, start):
    """Words and what they end in; around a text, CLIP: two tokens, SigLIP: one behind it."""
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    end = vocabulary[-1] if start else "[END]"
    frame = f"{start} $A {end}" if start else f"$A {end}"
    t.post_processor = processors.TemplateProcessing(
        single=frame, special_tokens=[(w, vocabulary.index(w)) for w in ([start] if start else []) + [end]])
    return t


def rounded(tensor):
    return [[float(f"{x:.7g}") for x in row] for row in tensor.double().tolist()]


def results(name, model, pixels, texts):
    with torch.no_grad():
        if not hasattr(model, "logit_scale"):
            return {"probabilities": rounded(model(pixel_values=pixels).logits.double().softmax(-1))}
        each = [model(pixel_values=pixels, input_ids=torch.tensor([x])) for x in texts]
        logits = torch.cat([x.logits_per_image for x in each], dim=1).double()
        return {"probabilities": rounded(logits.sigmoid() if name == "siglip" else logits.softmax(-1)),
                "vectors": rounded(each[0].vision_model_output.pooler_output)}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    F.define()
    files = {c["name"]: base64.b64decode(c["bytes"])
             for c in json.loads((HERE / "images" / "files.json").read_text())["cases"]}
    out = {"source": f"transformers {T.__version__}", "pictures": PICTURES, "labels": LABELS, "toys": {}}
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        images = []
        for name in PICTURES:
            (folder / name).write_bytes(files[name])
            images.append(load_image(str(folder / name)))
        for name, (kind, fields, stored) in TOYS.items():
            t = {**F.TOYS[name], "rule": lambda toy, n, shape: V.rule(toy, n, shape, F.plain_rule)}
            (folder / f"{name}-model").mkdir()
            F.make_folder(t, folder / f"{name}-model")
            model = F.load(t, folder / f"{name}-model")
            pixels = torch.stack([torch.from_numpy(kind(**fields)(x)["pixel_values"][0]) for x in images])
            case = {"processor": stored}
            texts = []
            if hasattr(model, "logit_scale"):
                words = WORDS + [f"[{i}]" for i in range(len(WORDS), F.VOCAB)]
                made = tokenizer(words, words[-2] if name == "clip" else "")
                texts = [made.encode(f"This is a photo of {x}.").ids for x in LABELS]
                if name == "siglip":
                    texts = [x + [1] * (16 - len(x)) for x in texts]
                case["tokenizer"] = json.loads(made.to_str())
            case.update(results(name, model, pixels, texts))
            out["toys"][name] = case
    text = json.dumps(out, separators=(",", ":")).replace('},"', '},\n"').replace("],[", "],\n[")
    (HERE / "use" / "pictures.json").write_text(text + "\n")
    print(len(text), "bytes", {n: c["probabilities"][0] for n, c in out["toys"].items()})


if __name__ == "__main__":
    main()
