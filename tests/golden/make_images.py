#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes images/files.json and images/processors.json: what Pillow makes of PNG and JPEG files, and what the
image processors of transformers (those that use Pillow) make of pictures.

    python tests/golden/make_images.py        transformers 5.22, Pillow 13, NumPy

Pictures are drawn by a rule in whole numbers (picture()), which tests/image_files.h repeats, so only files
of a few hundred bytes and expected numbers are stored.
"""
import base64
import io
import json
import pathlib
import struct
import warnings
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

HERE = pathlib.Path(__file__).parent / "images"
MASK = 0xFFFFFFFF


def picture(width, height, seed, channels=3):
    """Ramps, stripes and noise; every operation is one of unsigned whole numbers."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    x, y, c = (a.astype(np.uint64) for a in (x, y, c))
    h = (x * 2654435761 + y * 2246822519 + c * 3266489917 + seed * 668265263) & MASK
    h ^= h >> 15
    h = h * 2246822519 & MASK
    h ^= h >> 13
    across, down = x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1)
    ramp = (across * (c + 1) + down * (3 - np.minimum(c, 3))) // 4
    stripe = np.where((x // 5 + y // 7 + seed) % 3 == c, 64, 0).astype(np.uint64)
    return np.minimum(ramp + stripe + (h & 63), 255).astype(np.uint8)


# PNG, written by hand: every colour type, depth, filter and interlacing.

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def filtered(rows, step, kind):
    """Rows of bytes with their filters; kind None: one after the other."""
    out, above = b"", None
    for r, row in enumerate(rows):
        f = r % 5 if kind is None else kind
        above = above or bytes(len(row))
        left = bytes(step) + row
        corner = bytes(step) + above
        guess = [lambda i: 0, lambda i: left[i], lambda i: above[i], lambda i: (left[i] + above[i]) // 2,
                 lambda i: paeth(left[i], above[i], corner[i])][f]
        out += bytes([f]) + bytes((v - guess(i)) & 255 for i, v in enumerate(row))
        above = row
    return out


def packed_row(samples, depth):
    if depth == 16:
        return b"".join(struct.pack(">H", int(v)) for v in samples)
    bits = "".join(format(int(v), f"0{depth}b") for v in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(width, height, color, depth, seed, interlaced=False, filters=None, palette=None, alpha=None,
        pieces=1):
    n = CHANNELS[color]
    values = picture(width, height, seed, n).astype(np.int64)
    if depth == 16:
        values = values * 257 - values // 3 if color else values * 2
    elif depth < 8:
        values >>= 8 - depth
    if palette:
        values %= len(palette) // 3
    step, data = max(1, n * depth // 8), b""
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = values[y::dy, x::dx]
        if part.size:
            data += filtered([packed_row(row.reshape(-1), depth) for row in part], step, filters)
    stream = zlib.compress(data, 9)
    cuts = [len(stream) * i // pieces for i in range(pieces + 1)]
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + (chunk(b"PLTE", bytes(palette)) if palette else b"")
            + (chunk(b"tRNS", bytes(alpha)) if alpha else b"")
            + b"".join(chunk(b"IDAT", stream[a:b]) for a, b in zip(cuts, cuts[1:])) + chunk(b"IEND", b""))


def colors(n):
    return [(i * 37 + 11) % 256 for i in range(3 * n)]


def pngs():
    for color, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            palette = colors(min(2**depth, 61)) if color == 3 else None
            for interlaced in (False, True):
                width, height = (11, 9) if interlaced else (13, 5)
                yield (f"png-{color}-{depth}{'-adam7' if interlaced else ''}",
                       png(width, height, color, depth, color + depth, interlaced, palette=palette))
    for kind in range(5):
        yield f"png-filter-{kind}", png(9, 4, 2, 8, kind, filters=kind)
    for width, height in ((1, 1), (1, 9), (9, 1), (2, 2), (5, 3)):
        yield f"png-adam7-{width}x{height}", png(width, height, 2, 8, 3, True)
    yield "png-pieces", png(17, 6, 6, 8, 5, pieces=7)
    yield "png-palette-alpha", png(12, 5, 3, 4, 1, palette=colors(16), alpha=[0, 128, 255, 7, 200])
    yield "png-palette-alpha-1", png(12, 5, 3, 1, 1, palette=colors(2), alpha=[255, 0])
    values = picture(8, 8, 2, 1)
    yield "png-grey-key", png(8, 8, 0, 8, 2, alpha=[0, int(values[3, 3, 0])])
    yield "png-grey-key-1", png(8, 8, 0, 1, 2, alpha=[0, 1])
    yield "png-grey-key-2", png(8, 8, 0, 2, 2, alpha=[0, 1])
    yield "png-grey-key-16", png(8, 8, 0, 16, 2, alpha=[0, 100])
    yield "png-rgb-key", png(8, 8, 2, 8, 2, alpha=[b for v in picture(8, 8, 2)[3, 3] for b in (0, int(v))])
    yield "png-rgb-palette", png(8, 8, 2, 8, 2, palette=colors(4))  # a suggestion, not used


# JPEG, by Pillow; what it does not write is made by changing a byte or two.

def jpeg(width, height, seed, mode="RGB", **options):
    data = picture(width, height, seed, {"L": 1, "RGB": 3, "CMYK": 4}[mode])
    out = io.BytesIO()
    Image.fromarray(data[..., 0] if mode == "L" else data, mode).save(out, "JPEG", **options)
    return out.getvalue()


def at_marker(data, marker):
    return data.index(bytes([0xFF, marker]))


def adobe_transform(data, value):
    i = at_marker(data, 0xEE)
    return data[:i + 15] + bytes([value]) + data[i + 16:]


def without_marker(data, marker):
    i = at_marker(data, marker)
    return data[:i] + data[i + 2 + struct.unpack(">H", data[i + 2:i + 4])[0]:]


def sampling(data, value):
    """The first component's sampling factors."""
    i = at_marker(data, 0xC0)
    return data[:i + 11] + bytes([value]) + data[i + 12:]


def jpegs():
    plain = {"444": (19, 13, dict(subsampling=0)), "422": (19, 13, dict(subsampling=1)),
             "420": (19, 13, dict(subsampling=2)), "420-odd": (33, 17, dict(subsampling=2)),
             "one": (1, 1, {}), "line": (1, 23, {}), "column": (21, 1, {}),
             "poor": (24, 16, dict(quality=5)), "fine": (12, 12, dict(quality=98)),
             "progressive": (21, 18, dict(progressive=True)),
             "progressive-444": (17, 9, dict(progressive=True, subsampling=0)),
             "restart": (40, 17, dict(restart_marker_blocks=2)),
             "optimized": (18, 11, dict(optimize=True)), "rgb": (17, 10, dict(keep_rgb=True))}
    for name, (width, height, options) in plain.items():
        yield f"jpeg-{name}", jpeg(width, height, len(name), **options)
    yield "jpeg-grey", jpeg(15, 9, 4, "L")
    yield "jpeg-grey-progressive", jpeg(15, 9, 4, "L", progressive=True)
    inks = jpeg(13, 10, 6, "CMYK")
    yield "jpeg-cmyk", inks
    yield "jpeg-ycck", adobe_transform(inks, 2)
    yield "jpeg-cmyk-plain", without_marker(inks, 0xEE)
    # What the library only warns of: damage in the middle, and fewer blocks than said.
    whole = jpeg(40, 32, 9)
    damage = bytes(b ^ 0x55 if b < 0x80 else b for b in whole[-120:-110])
    yield "jpeg-damaged", whole[:-120] + damage + whole[-110:]
    frame = at_marker(whole, 0xC0)
    yield "jpeg-short", whole[:frame + 5] + struct.pack(">HH", 60, 40) + whole[frame + 9:]
    yield "jpeg-440", sampling(jpeg(16, 16, 3, subsampling=1), 0x12)


def files():
    for name, data in [*pngs(), *jpegs()]:
        image = Image.open(io.BytesIO(data))
        plain = np.array(image.convert("RGB"))
        yield dict(name=name, bytes=base64.b64encode(data).decode(), width=image.width, height=image.height,
                   crc=zlib.crc32(plain.tobytes()))


def exif(orientation, order):
    """A TIFF file with two entries; order: ">" or "<"."""
    start = b"MM\0*" if order == ">" else b"II*\0"
    return (start + struct.pack(order + "IH", 8, 2) + struct.pack(order + "HHII", 0x0100, 4, 1, 7)
            + struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0) + struct.pack(order + "I", 0))


def upright():
    """Checksums of jpeg-444 behind EXIF segments with the orientations 1 to 8, and of a PNG with 6."""
    def sum_of(data):
        return zlib.crc32(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB").tobytes())
    base, picture_of_6 = dict(jpegs())["jpeg-444"], dict(pngs())["png-2-8"]
    sums = []
    for orientation in range(1, 9):
        notes = b"Exif\0\0" + exif(orientation, ">" if orientation % 2 else "<")
        sums.append(sum_of(base[:2] + b"\xFF\xE1" + struct.pack(">H", len(notes) + 2) + notes + base[2:]))
    return sums + [sum_of(picture_of_6[:33] + chunk(b"eXIf", exif(6, ">")) + picture_of_6[33:])]


# Processors.

IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
VIT, DEIT, BIT = ViTImageProcessorPil, DeiTImageProcessorPil, BitImageProcessorPil
CLIP, SIGLIP = CLIPImageProcessorPil, SiglipImageProcessorPil


def config(kind, ending="", **fields):
    """A class and the object of its file; ending "Fast", or "FeatureExtractor" for a name of 2021."""
    name = kind.__name__.removesuffix("Pil")
    if ending == "FeatureExtractor":
        return kind, dict(feature_extractor_type=name.replace("ImageProcessor", ending), **fields)
    return kind, dict(image_processor_type=name + ending, **fields)


CONFIGS = {
    "vit": config(VIT),
    "vit-int": config(VIT, "FeatureExtractor", size=37),
    "vit-pair": config(VIT, "Fast", size=[40, 23], resample=0),
    "vit-lanczos": config(VIT, size=dict(height=96, width=64), resample=1, do_normalize=False),
    "vit-plain": config(VIT, size=48, resample=4, do_rescale=False, image_mean=127.5, image_std=127.5),
    "vit-bytes": config(VIT, size=33, resample=5, do_rescale=False, do_normalize=False),
    "deit": config(DEIT, **IMAGENET),
    "deit-small": config(DEIT, "Fast", size=51, crop_size=45),
    "dinov2": config(BIT, size=dict(shortest_edge=256), crop_size=dict(height=224, width=224), **IMAGENET),
    "bit": config(BIT, size=30, crop_size=[41, 20]),
    "bit-crop": config(BIT, do_resize=False, crop_size=dict(height=50, width=31)),
    "clip": config(CLIP),
    "clip-336": config(CLIP, "FeatureExtractor", size=336, crop_size=336),
    "clip-uncropped": config(CLIP, size=dict(shortest_edge=29), do_center_crop=False),
    "siglip": config(SIGLIP),
    "siglip-odd": config(SIGLIP, "Fast", size=dict(height=71, width=53), rescale_factor=1 / 127.5,
                         image_mean=[1, 1.0, 1], image_std=1),
}
SIZES = [(1, 1), (1, 7), (9, 1), (2, 300), (400, 3), (31, 31), (50, 37), (37, 50), (224, 224), (225, 223),
         (256, 256), (640, 480), (333, 501), (1000, 77), (64, 911), (29, 29), (30, 31), (41, 20), (1237, 853)]
WHOLE = ("vit", "deit", "dinov2", "clip", "siglip")  # these with every third size, the others with two


def cases():
    names = sorted(CONFIGS)
    for k, name in enumerate(names):
        picked = [SIZES[(5 * k + 3) % len(SIZES)], SIZES[(7 * k + 6) % len(SIZES)]]
        if name in WHOLE:
            picked = SIZES[k % 3::3]
        for width, height in picked:
            yield name, width, height


def processed():
    for seed, (name, width, height) in enumerate(cases()):
        kind, fields = CONFIGS[name]
        options = {key: value for key, value in fields.items() if not key.endswith("_type")}
        image = Image.fromarray(picture(width, height, seed))
        out = np.ascontiguousarray(np.asarray(kind(**options)(image)["pixel_values"][0], dtype=np.float32))
        flat = out.reshape(-1)
        places = [(i * 2654435761 + 12345) % flat.size for i in range(12)]
        yield dict(config=name, width=width, height=height, seed=seed, shape=list(out.shape),
                   values=[float(f"{flat[p]:.7g}") for p in places],
                   sums=[round(float(out[c].astype(np.float64).sum()), 4) for c in range(3)],
                   crc=zlib.crc32(out.tobytes()))


def numbers():
    """DINOv3: rescaled, then resized as torchvision does it, by torch, then normalised."""
    mean, std = (torch.tensor(IMAGENET[k]).view(3, 1, 1) for k in ("image_mean", "image_std"))
    sizes = [(1, 1), (9, 1), (2, 300), (50, 37), (37, 50), (640, 480), (64, 911), (1237, 853)]
    for seed, (width, height) in enumerate(sizes):
        size, mode = [(224, 224), (48, 33)][seed % 2], ["bilinear", "bicubic"][seed // 2 % 2]
        fields = dict(image_processor_type="DINOv3ViTImageProcessorFast",
                      size=dict(height=size[0], width=size[1]))
        if mode == "bicubic":
            fields["resample"] = 3
        x = torch.from_numpy(picture(width, height, seed)).permute(2, 0, 1)[None] * (1 / 255)
        out = torch.nn.functional.interpolate(x, size, mode=mode, antialias=True, align_corners=False)[0]
        flat = ((out - mean) / std).reshape(-1)
        places = [(i * 2654435761 + 12345) % flat.numel() for i in range(16)]
        yield dict(fields=fields, width=width, height=height, seed=seed, shape=[3, *size],
                   values=[float(f"{flat[p]:.7g}") for p in places])


def write(name, head, items):
    lines = [json.dumps(item, separators=(",", ":")) for item in items]
    (HERE / name).write_text("{" + head + '"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(name, len(lines), (HERE / name).stat().st_size, "bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    HERE.mkdir(exist_ok=True)
    write("files.json", f'"upright":{json.dumps(upright())},\n', files())
    configs = json.dumps({name: fields for name, (_, fields) in sorted(CONFIGS.items())},
                         separators=(",", ":"))
    resized = ",\n".join(json.dumps(item, separators=(",", ":")) for item in numbers())
    write("processors.json", f'"configs":{configs},\n"numbers":[\n{resized}],\n', processed())
