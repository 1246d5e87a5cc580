# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Install the wheel with each extra, alone, into a new environment, and run what the extra is for, away from the
checkout: `make test-extras`, or `python tests/tools/try_extras.py [extras]`. About two minutes for each.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]
TINY = "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=32"
MODEL = f"""
from modeling_lion import LionForMaskedLM, LionTokenizer, lion_preset
tokenizer = LionTokenizer.train_from_iterator(["a lion sleeps", "a lion roars"] * 9, vocab_size=60)
config = lion_preset("lion-text-small", vocab_size=len(tokenizer), {TINY})
LionForMaskedLM(config).save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
"""
EMBED = """
import modeling_lion
from sentence_transformers import SentenceTransformer
encoder = SentenceTransformer("checkpoints/lion-minilm-l6")
texts = ["Open an archive and extract its members.", "Compute the mean along an axis."]
assert encoder.similarity(encoder.encode("how do I read a zip file"), encoder.encode(texts)).argmax() == 0
"""
IMAGE = """
from PIL import Image
from modeling_lion import LionForImageClassification, lion_image_processor, lion_preset
config = lion_preset("lion-image-small", image_size=32)
pixels = lion_image_processor(config)(Image.new("RGB", (50, 40)), return_tensors="pt")
assert LionForImageClassification(config)(**pixels).logits.shape == (1, 2)
"""
SERVE = """
import json, subprocess, sys, time, urllib.request
command = ["-m", "deploy_lion.cli", "serve", "checkpoints/lion-minilm-l6", "--port", "8123"]
server = subprocess.Popen([sys.executable, *command])
body = urllib.request.Request("http://127.0.0.1:8123/embed", b'{"inputs": "a lion"}')
body.add_header("Content-Type", "application/json")
try:
    for _ in range(300):
        try:
            answer = urllib.request.urlopen(body, timeout=60)
            break
        except OSError:  # it is not there yet
            time.sleep(1)
    else:
        sys.exit("the server does not answer")
    assert len(json.load(answer)[0]) == 384
finally:
    server.terminate()
"""
PAGE = """
from pathlib import Path
from retrieval_lion.documents import passages_of
Path("pages").mkdir()
Path("pages/lion.html").write_text("<h1>Lions</h1><p>A lion sleeps.</p>")
(passage,) = passages_of("pages/lion.html", "pages")
assert passage.place == "lion.html: Lions"
"""
ADAPT = """
from modeling_lion import LionForMaskedLM
from peft import LoraConfig, get_peft_model
from transformers import BitsAndBytesConfig
get_peft_model(LionForMaskedLM.from_pretrained("tiny"), LoraConfig(target_modules="all-linear"))
LionForMaskedLM.from_pretrained("tiny", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
"""
TRAIN = f"""
import sys
sys.path.insert(0, "examples")
import run_mlm
run_mlm.main("--config_name lion-text-small --config_overrides {TINY} --tokenizer_name tiny --train_file text.txt "
    "--do_train --max_steps 2 --output_dir out --use_cpu".split())
"""
# What is run with each extra: arguments of Python.
ROADS = {
    "": [["-c", MODEL], ["-m", "deploy_lion.cli", "--version"]],
    "embeddings": [["-c", EMBED]],
    "search": [["-m", "deploy_lion.cli", "search", ".", "a lion", "--keep_minutes", "0.1"]],
    "search,files": [["-c", PAGE], ["-m", "deploy_lion.cli", "search", "pages", "a lion", "--keep_minutes", "0.1"]],
    "embed": [["-m", "deploy_lion.cli", "embed", "text.txt", "--out", "vectors"]],
    "ray": [["-m", "deploy_lion.cli", "embed", "text.txt", "--out", "vectors", "--ray"]],
    "vision": [["-c", IMAGE]],
    "train": [["-c", MODEL], ["-c", TRAIN]],
    "distill": [["examples/distill.py", "--help"]],
    "export": [["-c", MODEL], ["-m", "deploy_lion.cli", "export", "tiny", "onnx"]],
    "adapters": [["-c", MODEL], ["-c", ADAPT]],
    "app": [["-c", "from deploy_lion.app.page import build_app; build_app()"]],
    "serve": [["-c", SERVE]],
    "real": [["benchmarks/tasks/real_data.py", "--help"], ["-c", "import bs4"]],
    "docs": [["-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", "site"]],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help=f"those to try: {', '.join(ROADS)}; all, and none, if not given")
    args = parser.parse_args()
    if unknown := set(args.extras) - ROADS.keys():
        raise ValueError(f"There is no extra {', '.join(unknown)}; give one of {', '.join(ROADS)}.")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
        subprocess.run([*pip, str(ROOT)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        for extra in args.extras or ROADS:
            begin = time.monotonic()
            error = try_extra(Path(folder, extra or "none"), wheel, extra)
            print(f"[{extra}]: {error or 'works'} ({time.monotonic() - begin:.0f} s)", flush=True)
            failed += [extra] if error else []
    return len(failed)


def try_extra(folder: Path, wheel: Path, extra: str) -> str:
    """What failed; nothing if all works."""
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    options = ["--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([python, "-m", "pip", "install", *options, f"{wheel}[{extra}]" if extra else wheel], check=True)
    work = folder / "work"
    work.mkdir()
    for name in ("examples", "checkpoints"):
        (work / name).symlink_to(ROOT / name)
    (work / "text.txt").write_text("a lion sleeps\na lion roars\n" * 20)
    for arguments in ROADS[extra]:
        done = subprocess.run([python, *arguments], cwd=work, capture_output=True, text=True)
        if done.returncode:
            return f"{arguments[:2]} failed:\n{done.stderr[-1500:]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
