# SPDX-License-Identifier: Apache-2.0
"""Toys of models that read pictures, and of the texts beside them, for make_families.py; files in vision/.

What a file holds, beside `name`, `source`, `config` and `tensors`, which are as in families/:

  "cases": [ {"pixels": ["vit pixels 15x25", [2, 3, 15, 25], 1.8, 0.1],
              "interpolate": true,
              "sequences": [[59, 4, 60], ...],
              "expect": {"logits": {"shape": [2, 5], "values": [...]},
                         "last_hidden_state": {"rows": [0, 1, 8], "shape": [2, 3, 36], "values": [...]}}} ]

`pixels`: name, shape [N, 3, height, width], scale and offset, values by the rule of the tensors: what a
preprocessor would give. `interpolate` is there where the library had to be told that the picture is not of
the size the table of positions was made for (DINOv2 does it unasked). `sequences`: token ids of the texts as
the model sees them, with their start, end and padding; each was computed on its own, without a mask of
padding. `expect`, float64, seven digits, shape by shape:

  logits                      a classifier's; of DeiT with a teacher the mean of cls_logits and
                              distillation_logits, which are there too
  last_hidden_state           [N, T, C] behind the last norm, of CLIP before it: of every picture the rows
                              `rows` (first the class token, DeiT's second token, registers; SigLIP has none)
  pooler_output               [N, C]: ViT's class token through a matrix and tanh, DINOv2's as it is, CLIP's
                              through its last norm, what SigLIP's probe gathers
  image_features, text_features   CLIP: projected; SigLIP: pooler_output; not of length one
  image_embeds, text_embeds   the same divided by their length
  logits_per_image            [N, texts]: exp(logit_scale) * image_embeds . text_embeds (+ logit_bias)
  text_hidden_state           last_hidden_state of the texts: one after the other all their rows [rows, C]
  text_pooler_output          [texts, C]: CLIP's row of the end token, SigLIP's last row through its head

Refused: float32 and float64 more than 2e-5 of the largest value (at least 1) apart.
"""
import json
import math
import pathlib
import shutil
import tempfile

import torch
import transformers as T


def rule(t, name, shape, plain):
    """What make_families.rule does not know: kernels, which are matrices despite their names, factors, and
    scalars."""
    last = name.split(".")[-1]
    if last == "logit_scale":
        return 0.5, 2.0
    if last == "lambda1" or "layer_scale" in name:
        return 0.6, 0.8
    if len(shape) == 4:
        return float(f"{1.5 * 1.7320508 / math.sqrt(math.prod(shape[1:])):.7g}"), 0.0
    return plain(t, name, shape)


def results(t, model, case):
    """Of one case, under the names of the file."""
    options = {"interpolate_pos_encoding": True} if case.get("interpolate") else {}
    texts = [torch.tensor([s]) for s in case.get("sequences", ())]
    pixels = case.get("values")
    if pixels is not None:
        pixels = pixels.to(next(model.parameters()).dtype)
    out = {}
    with torch.no_grad():
        if hasattr(model, "logit_scale"):
            each = [model(pixel_values=pixels, input_ids=x, **options) for x in texts]
            picture, words = each[0].vision_model_output, [x.text_model_output for x in each]
            out["image_embeds"] = each[0].image_embeds
            out["text_embeds"] = torch.cat([x.text_embeds for x in each])
            out["logits_per_image"] = torch.cat([x.logits_per_image for x in each], dim=1)
            # What the library calls pooler_output here is CLIP's projected row.
            out["image_features"] = picture.pooler_output
            out["text_features"] = torch.cat([x.pooler_output for x in words])
            out["last_hidden_state"] = picture.last_hidden_state
            out["text_hidden_state"] = torch.cat([x.last_hidden_state[0] for x in words])
            return out
        if texts:
            each = [model(input_ids=x) for x in texts]
            out["text_hidden_state"] = torch.cat([x.last_hidden_state[0] for x in each])
            for key, said in (("pooler_output", "text_pooler_output"), ("text_embeds", "text_features")):
                if getattr(each[0], key, None) is not None:
                    out[said] = torch.cat([getattr(x, key) for x in each])
            return out
        y = model(pixel_values=pixels, **options)
        for key in ("logits", "cls_logits", "distillation_logits", "pooler_output"):
            if getattr(y, key, None) is not None and not (key == "pooler_output" and t.get("drop")):
                out[key] = getattr(y, key)
        if getattr(y, "image_embeds", None) is not None:
            out["image_features"] = y.image_embeds
        if hasattr(y, "last_hidden_state"):
            out["last_hidden_state"] = y.last_hidden_state
    return out


def make(t, keep):
    import make_families as base
    t = {**t, "rule": lambda toy, name, shape: rule(toy, name, shape, base.plain_rule)}
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(keep or temp) / t["name"]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tensors = base.make_folder(t, folder)
        cases = []
        for case in t["cases"]:
            case = dict(case)
            if "size" in case:
                height, width = case.pop("size")
                shape = [2, 3, height, width]
                case["pixels"] = [f"{t['name']} pixels {height}x{width}", shape, 1.8, 0.1]
                case["values"] = torch.from_numpy(base.values(*case["pixels"]))
            cases.append(case)
        single = base.load(t, folder)
        state = single.state_dict()
        for n, shape, scale, offset in tensors:
            if n in state:
                drawn = torch.from_numpy(base.values(n, shape, scale, offset))
                assert torch.equal(state[n], drawn), f"{t['name']}: {n}"
        with base.doubles():
            model = base.load_double(t, folder, tensors, state)
            expected = [results(t, model, case) for case in cases]
        worst, stored = 0.0, []
        for case, want in zip(cases, expected):
            have = results(t, single, case)
            for key, y in want.items():
                off = float((have[key].double() - y).abs().max()) / max(1.0, float(y.abs().max()))
                assert y.dtype == torch.float64 and off <= 2e-5, f"{t['name']}: {key} in float32 is {off} off"
                worst = max(worst, off)
            stored.append({k: case[k] for k in ("pixels", "interpolate", "sequences") if k in case})
            stored[-1]["expect"] = {key: entry(key, y) for key, y in want.items()}
        config = json.loads((folder / "config.json").read_text())
        if "stored_config" in t:
            config = t["stored_config"](config)
            (folder / "config.json").write_text(json.dumps(config))
        write(base, t, config, tensors, stored, worst)


def entry(key, y):
    if key != "last_hidden_state":
        return {"shape": list(y.shape), "values": y.flatten().tolist()}
    rows = sorted({0, 1, 2, y.shape[1] // 2, y.shape[1] - 1})
    return {"rows": rows, "shape": list(y[:, rows].shape), "values": y[:, rows].flatten().tolist()}


def write(base, t, config, tensors, cases, worst):
    for noise in ("transformers_version", "dtype"):
        for part in (config, *(x for x in config.values() if isinstance(x, dict))):
            part.pop(noise, None)
    text = (f'{{\n "name": {json.dumps(t["name"])},\n'
            f' "source": "transformers {T.__version__} {t["cls"].__name__}",\n'
            f' "config": {json.dumps(config)},\n "cases": [\n')
    parts = []
    for case in cases:
        head = [f'{json.dumps(k)}: {json.dumps(v)}' for k, v in case.items() if k != "expect"]
        each = []
        for key, v in case["expect"].items():
            rows = f'"rows": {v["rows"]}, ' if "rows" in v else ""
            each.append(f'    {json.dumps(key)}: {{{rows}"shape": {v["shape"]},\n     "values": ['
                        + ",".join(f"{x:.7g}" for x in v["values"]) + "]}")
        parts.append("  {" + ",\n   ".join(head) + ',\n   "expect": {\n' + ",\n".join(each) + "}}")
    text += ",\n".join(parts) + '],\n "tensors": [\n' + ",\n".join("  " + json.dumps(x) for x in tensors)
    text += "]\n}\n"
    json.loads(text)
    (base.HERE / "vision").mkdir(exist_ok=True)
    (base.HERE / "vision" / f"{t['name']}.json").write_text(text)
    seen = {k: f"{torch.tensor(v['values']).std():.2f}" for k, v in cases[0]["expect"].items()}
    print(f"{t['name']:28} {len(text):6} bytes  {t['cls'].__name__:40} f32 {worst:7.1e}  std {seen}",
          flush=True)


def unusual(config, key):
    """Of a tower's config what differs from the library's defaults."""
    kinds = {"clip": (T.CLIPTextConfig, T.CLIPVisionConfig),
             "siglip": (T.SiglipTextConfig, T.SiglipVisionConfig)}
    usual = kinds[config["model_type"]][key == "vision_config"]().to_dict()
    return {k: v for k, v in config[key].items() if k == "model_type" or usual.get(k) != v}


def sparse(config):
    """As SigLIP is released."""
    return {**config, **{key: unusual(config, key) for key in ("text_config", "vision_config")}}


def twice(config):
    """As CLIP is released: once more under other keys, which the library takes, with its defaults."""
    return {**config, **{key + "_dict": unusual(config, key) for key in ("text_config", "vision_config")}}


def at(*sizes, interpolate=True):
    return [{"size": s, **({"interpolate": True} if interpolate else {})} for s in sizes]


def define(toy, llama, rope, vocab):
    def picture(name, cls, config, cases, **more):
        toy(name, cls, config, cases=cases, make=make, **more)

    labels = ["red", "green", "blue", "grey", "teal"]
    named = dict(id2label=dict(enumerate(labels)), label2id={x: i for i, x in enumerate(labels)})
    vit = dict(hidden_size=36, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
               image_size=20, patch_size=5)
    plain = [{"size": (20, 20)}]
    # Another grid, smaller and larger; a border of pixels that fill no patch; as many patches in another
    # shape; a square picture with a border, which keeps the table.
    others = at((35, 15), (10, 10), (23, 31), (10, 40), (23, 23))
    picture("vit", T.ViTForImageClassification, dict(vit, **named), plain + others)
    picture("vit-wide", T.ViTForImageClassification,
            dict(vit, image_size=[15, 25], qkv_bias=False, hidden_act="gelu_pytorch_tanh",
                 layer_norm_eps=1e-6, **named), [{"size": (15, 25)}])
    picture("vit-model", T.ViTModel, vit, plain + at((35, 15)))
    picture("vit-no-pooler", T.ViTModel, vit, plain, drop=("pooler.dense.weight", "pooler.dense.bias"))
    picture("deit", T.DeiTForImageClassificationWithTeacher, dict(vit, **named), plain + others[:2])
    picture("deit-class", T.DeiTForImageClassification, dict(vit, **named), plain)

    dino = dict(hidden_size=40, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=24,
                patch_size=6)
    anyway = at((24, 24), (18, 42), (29, 35), (12, 12), interpolate=False)
    picture("dinov2", T.Dinov2ForImageClassification, dict(dino, **named), anyway)
    picture("dinov2-model", T.Dinov2Model, dino, anyway[:2])
    picture("dinov2-swiglu", T.Dinov2Model, dict(dino, mlp_ratio=4, use_swiglu_ffn=True), anyway[:2])
    registers = dict(dino, num_register_tokens=3)
    picture("dinov2-registers", T.Dinov2WithRegistersForImageClassification, dict(registers, **named), anyway)
    picture("dinov2-registers-model", T.Dinov2WithRegistersModel, dict(registers, use_swiglu_ffn=True),
            anyway[:2])

    # Positions turn queries and keys by row and column.
    grid = dict(hidden_size=48, intermediate_size=52, num_hidden_layers=2, num_attention_heads=3,
                image_size=24,
                patch_size=6, num_register_tokens=3)
    picture("dinov3", T.DINOv3ViTModel, grid, anyway)
    picture("dinov3-gated", T.DINOv3ViTModel,
            dict(grid, use_gated_mlp=True, hidden_act="silu", key_bias=True, rope_theta=30.0), anyway[:2])

    see = dict(hidden_size=36, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4,
               image_size=18, patch_size=6)
    read = dict(vocab_size=vocab, hidden_size=40, intermediate_size=44, num_hidden_layers=2,
                num_attention_heads=4, max_position_embeddings=16, pad_token_id=1)
    square, tall = {"size": (18, 18)}, {"size": (24, 19), "interpolate": True}
    # The end is the largest id, wherever the config says it is (2, as released); texts padded with it.
    old = [[59, 7, 31, 2, 18, 60], [59, 60], [59, 44, 2, 2, 5, 11, 60, 60, 60, 60]]
    # The end is the first 50; larger ids are words.
    new = [[49, 7, 58, 31, 50], [49, 50], [49, 44, 60, 5, 50, 50, 50], [49, 3, 50, 1, 1]]
    picture("clip", T.CLIPModel,
            dict(text_config=dict(read, bos_token_id=0, eos_token_id=2, projection_dim=28),
                 vision_config=dict(see, projection_dim=28), projection_dim=28),
            [dict(square, sequences=old), dict(tall, sequences=old[:1])], stored_config=twice)
    picture("clip-gelu", T.CLIPModel,
            dict(text_config=dict(read, bos_token_id=49, eos_token_id=50, hidden_act="gelu"),
                 vision_config=dict(see, hidden_act="gelu"), projection_dim=28),
            [dict(square, sequences=new)], stored_config=sparse)
    picture("clip-vision", T.CLIPVisionModel, see, [square, tall])
    picture("clip-vision-projection", T.CLIPVisionModelWithProjection, dict(see, projection_dim=28), [square])
    picture("clip-text", T.CLIPTextModel, dict(read, bos_token_id=49, eos_token_id=50), [{"sequences": new}])
    picture("clip-text-projection", T.CLIPTextModelWithProjection,
            dict(read, bos_token_id=0, eos_token_id=2, projection_dim=28), [{"sequences": old}])

    # Padded to the whole context, as it was trained; the last row counts, which may be padding.
    full = [s + [1] * (16 - len(s)) for s in ([7, 31, 2, 18, 1], [44, 1], list(range(20, 36)))]
    both = dict(text_config=dict(read, bos_token_id=0, eos_token_id=1, hidden_size=36),
                vision_config=see)
    picture("siglip", T.SiglipModel, both, [dict(square, sequences=full), dict(tall, sequences=full[:1])])
    picture("siglip-wide", T.SiglipModel,  # so400m: widths of the towers are equal by a key of the text's
            dict(text_config=dict(read, bos_token_id=0, eos_token_id=1, projection_size=36),
                 vision_config=see), [dict(square, sequences=full)], stored_config=sparse)
    picture("siglip-vision", T.SiglipVisionModel, see, [square, tall])
    picture("siglip-text", T.SiglipTextModel, dict(read, bos_token_id=0, eos_token_id=1),
            [{"sequences": full}])
