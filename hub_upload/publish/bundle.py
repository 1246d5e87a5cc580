# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Turn a trained checkpoint into a folder that is a complete Hub repository."""

import argparse
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import yaml
from huggingface_hub import CardData, RepoCard
from tokenization_lion import LionTokenizer

from ..checkpoint import copy_file, find_checkpoint, is_weights, load_model, load_preprocessor, new_folder
from ..sentence_modules import MODULES, check_embeddings, encoder_class, sentence_files
from ..traits import traits_of
from ..verify import Verification, verification_table, verify_checkpoint
from .model_card import TAGS, complete_metadata, model_card, read_eval_results, read_metadata, read_training
from .refusals import bad_weights, bundle_files, find_refusals


TOKENIZER_CODE = "tokenization_lion.py"
CARD_OPTIONS = ("license", "language", "datasets", "base_model")


@dataclass(frozen=True)
class Bundle:
    """
    A folder that is ready to be published.

    Attributes:
        files: names and sizes in bytes.
        metadata: the metadata of its model card.
        verification: how well the kernels agree on these weights.
        left_out: names of files and folders of the source that were not taken.
    """

    folder: Path
    files: dict[str, int]
    metadata: dict
    verification: Verification
    left_out: tuple[str, ...] = ()


def create_bundle(
    source: str | Path,
    target: str | Path,
    *,
    name: str | None = None,
    license: str | None = None,
    language: str | list[str] | None = None,
    datasets: str | list[str] | None = None,
    base_model: str | None = None,
    eval_results: str | Path | None = None,
    file: str | Path | None = None,
    max_shard_size: str = "5GB",
) -> Bundle:
    """
    Make a folder with everything that a Hub repository needs: weights (safetensors), configuration with `auto_map`,
    code, tokenizer or image processor, and a model card. `AutoModel*.from_pretrained(folder, trust_remote_code=True)`
    and `pipeline()` then work where this package is not installed.

    A README.md in `source` is copied and its metadata completed, unless the Trainer wrote it. Modules of
    sentence-transformers are copied after a check that they give the same embeddings in a process without this
    package. All other files stay behind, such as optimizer states and pickles; `Bundle.left_out` lists them.

    Args:
        source: a folder of `save_pretrained` or the output folder of a Trainer. If it has no weights itself, its
            newest checkpoint is taken.
        target: the folder to make.
        name: `user/name` of the repository, for the card; by default the name of the source folder.
        license, language, datasets, base_model: metadata of the card. They replace those of a README.md in `source`.
        eval_results: a file of results (YAML or JSON) in the Hub's format, for `.eval_results/`.
        file: a text or image file on which the kernels are compared; without one, inputs are random.
        max_shard_size: size above which the weights are split into several files.

    Returns:
        The folder, as a `Bundle`.

    Raises:
        ValueError: if the checkpoint must not be published; the message lists all reasons.
        OSError: if a file does not exist or is damaged, or `target` is in use (`FileExistsError`).
    """
    source = Path(source)
    if not source.is_dir():
        raise FileNotFoundError(f"There is no folder {source}.")
    checkpoint = find_checkpoint(source)
    metadata = given_metadata(source, license=license, language=language, datasets=datasets, base_model=base_model)
    modules = sentence_files(checkpoint)
    encoder = encoder_class(checkpoint) if modules else None
    refuse(source, [reason for path in checkpoint.glob("*.safetensors") for reason in bad_weights(path)])
    model = load_model(checkpoint)
    modality = traits_of(model).modality
    preprocessor = load_preprocessor(modality, checkpoint, source)
    results = read_eval_results(eval_results) if eval_results is not None else []
    metadata = complete_metadata(model, metadata, encoder)

    with new_folder(target) as folder:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        preprocessor.save_pretrained(folder)
        if modality == "text":
            finish_tokenizer_config(folder)
        for part in modules:
            copy_file(checkpoint / part, folder / part)
        verification = check_kernels(folder, file, source)
        card = own_card(source) or own_card(checkpoint)
        if card is None:
            state, metrics = read_training([source, checkpoint])
            title = name or source.absolute().name
            text = model_card(model, title, metadata, verification, state, metrics, results, encoder)
        else:
            text = f"---\n{CardData(**metadata).to_yaml()}\n---\n\n{card.strip()}\n"
        (folder / "README.md").write_text(text, encoding="utf-8")
        if results and eval_results is not None:
            copy_file(Path(eval_results), folder / ".eval_results" / f"{Path(eval_results).stem}.yaml")
        refuse(source, find_refusals(folder))
        if modules:
            check_embeddings(folder, checkpoint, modality)
    files = file_sizes(target)
    copied = files.keys() - ({"README.md"} if card is None else set())
    return Bundle(Path(target), files, metadata, verification, left_out(source, checkpoint, copied))


def given_metadata(source: str | Path, **given: str | list[str] | None) -> dict:
    """Return the metadata of the README.md in a folder or in its checkpoint. Given values replace it."""
    found = read_metadata(source) or read_metadata(find_checkpoint(source))
    return found | {key: value for key, value in given.items() if value}


def left_out(source: Path, checkpoint: Path, files: Collection[str]) -> tuple[str, ...]:
    """
    Return the names of files in `source` that a bundle with `files` lacks, and of folders from which it has no file.
    Weights in `checkpoint` are never listed, since a bundle may split them into other files.
    """
    taken: set[Path] = set()
    lost: list[Path] = []
    for path in sorted(source.rglob("*")):
        if path.is_file():
            name = path.relative_to(checkpoint if path.is_relative_to(checkpoint) else source).as_posix()
            is_taken = name in files or is_weights(name) or name == TOKENIZER_CODE
            taken.update(path.parents) if is_taken else lost.append(path)
    names: dict[str, None] = {}
    for path in lost:
        whole = [parent for parent in path.parents if parent not in taken and parent.is_relative_to(source)]
        name = (whole[-1] if whole and whole[-1] != source else path).relative_to(source).as_posix()
        names[f"{name}/" if whole else name] = None
    return tuple(names)


def refuse(source: Path, reasons: list[str]) -> None:
    """Raise a ValueError if there are reasons not to publish."""
    if reasons:
        raise ValueError("\n".join([f"{source} must not be published:", *reasons]))


def license_is_open(metadata: dict) -> bool:
    """Return whether the metadata names no licence."""
    license = str(metadata.get("license") or "").strip().lower()
    return license in ("", "unknown", "none", "tbd", "todo") or license == "other" and not metadata.get("license_name")


def check_license(metadata: dict) -> None:
    """Raise a ValueError if the metadata names no licence."""
    if license_is_open(metadata):
        raise ValueError(
            "The licence is open. Give one that is right for the weights and the training data, for example "
            "--license apache-2.0, or `license:` in the metadata of README.md (`other` needs `license_name`, too)."
        )


def finish_tokenizer_config(folder: Path) -> None:
    """
    Write BertTokenizer as the class of a saved LionTokenizer. A trained LionTokenizer behaves in the same way, and
    BertTokenizer loads without code from the repository. (Without permission to run code, transformers loads an
    unknown class as a plain backend, which gives no `token_type_ids`, and does not warn.)
    """
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for name in ("is_local", "local_files_only"):  # of the machine that saved it
        config.pop(name, None)
    if config["tokenizer_class"] == LionTokenizer.__name__:
        config["tokenizer_class"] = "BertTokenizer"
        config.pop("auto_map", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def own_card(source: Path) -> str | None:
    """Return the text of the README.md in a folder; `None` without one, or if the Trainer wrote it."""
    path = source / "README.md"
    if not path.is_file():
        return None
    card = RepoCard.load(path)
    # A comment of the Trainer, which it asks to remove from a card that is completed; and a model that does not exist.
    marks = ("This model card has been generated automatically", "sentence_transformers_model_id")
    is_generated = any(mark in card.text for mark in marks)
    return None if is_generated or not card.text.strip() else card.text


def check_kernels(folder: Path, file: str | Path | None, source: Path | None = None) -> Verification:
    """Return the result of `verify_checkpoint`. Raises a ValueError if kernels disagree or compute NaN."""
    verification = verify_checkpoint(folder, file=file)
    if not verification.passed:
        reasons = ["Its kernels do not agree with the float64 reference."]
        if verification.numerics.first_nan is not None:
            reasons.append(f"The first number that is not finite: {verification.numerics.first_nan}.")
        header, *rows = verification_table(verification)
        reasons += ["  ".join(row) for row in (header, *(row for row in rows if row[-1].startswith("FAILED")))]
        refuse(source or folder, [*reasons, "`lion verify` shows more."])
    return verification


def file_sizes(folder: str | Path) -> dict[str, int]:
    """Return the files of a bundle by name, with their sizes in bytes."""
    return {p.relative_to(folder).as_posix(): p.stat().st_size for p in bundle_files(folder)}


def is_bundle(folder: str | Path) -> bool:
    """Return whether a folder was made by `create_bundle` (and perhaps edited since)."""
    folder = Path(folder)
    code = all((folder / name).is_file() for name in ("config.json", "configuration_lion.py", "modeling_lion.py"))
    return code and {*TAGS} <= {*(read_metadata(folder).get("tags") or [])}


def open_bundle(folder: str | Path, *, file: str | Path | None = None) -> Bundle:
    """Check a folder of `create_bundle`, which may have been edited. Raises a ValueError that says what is wrong."""
    folder = Path(folder)
    metadata = read_metadata(folder)
    check_license(metadata)
    refuse(folder, find_refusals(folder))
    modality = traits_of(load_model(folder)).modality
    load_preprocessor(modality, folder)
    verification, files = check_kernels(folder, file), file_sizes(folder)
    if sentence_files(folder):
        check_embeddings(folder, folder, modality)
    return Bundle(folder, files, metadata, verification, left_out(folder, folder, files))


def add_card_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the model card, which `lion upload` shares."""
    parser.add_argument("--license", help="identifier of the licence, for example apache-2.0")
    parser.add_argument("--language", nargs="+", help="languages of the text, for example en")
    parser.add_argument("--datasets", nargs="+", help="Hub names of the training datasets")
    parser.add_argument("--base-model", help="Hub name of the model it was fine-tuned or converted from")
    parser.add_argument("--eval-results", type=Path, metavar="FILE", help="results in the Hub's format, YAML or JSON")
    parser.add_argument("--file", type=Path, help="a text or image file to compare the kernels on")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="trained checkpoint: a save_pretrained folder or a Trainer's output")
    parser.add_argument("output_dir", type=Path, help="folder to create")
    parser.add_argument("--name", help="user/name of the repository, for the card")
    parser.add_argument("--max-shard-size", default="5GB", help="split the weights above this size (default: 5GB)")
    add_card_arguments(parser)


def run(args: argparse.Namespace) -> None:
    options = {name: value for name, value in vars(args).items() if name not in ("command", "run")}
    bundle = create_bundle(options.pop("folder"), options.pop("output_dir"), **options)
    print_bundle(bundle)
    if license_is_open(bundle.metadata):
        print(
            "\nNote: no licence, so this is for your own use: nobody else may use it, and `lion upload` asks for one."
        )
    print(f"\nLook at {args.output_dir / 'README.md'}, then: lion upload {args.output_dir} USER/NAME --dry-run")


def print_bundle(bundle: Bundle) -> None:
    width = max(map(len, bundle.files))
    for name, size in bundle.files.items():
        print(f"{name.ljust(width)}  {format_size(size):>9}")
    print(f"{'total'.ljust(width)}  {format_size(sum(bundle.files.values())):>9}")
    print(f"\n{yaml.safe_dump(bundle.metadata, sort_keys=False, allow_unicode=True).rstrip()}")
    if MODULES in bundle.files:
        print("\nsentence-transformers computes the same from it, in a process without this package.")
    if bundle.left_out:
        print(f"\nLeft out: {', '.join(bundle.left_out)}")


def format_size(size: int) -> str:
    """Format a size as in "1.5 MB", with powers of 1000, as the Hub does."""
    power = min((len(str(size)) - 1) // 3, 3)
    return f"{size / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB')[power]}"
