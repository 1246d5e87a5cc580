# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Publish a checkpoint on the Hugging Face Hub.

Either all files arrive, in one commit, or none. Large files are sent first; the commit adds them to the repository.
After a broken connection, the same call sends only what is missing.
"""

import argparse
import tempfile
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HTTPError
from huggingface_hub.utils import validate_repo_id

from ..checkpoint import is_weights
from .bundle import (
    CARD_OPTIONS,
    add_card_arguments,
    check_license,
    create_bundle,
    given_metadata,
    is_bundle,
    open_bundle,
    print_bundle,
)
from .clean_process import load_in_clean_process
from .refusals import bundle_files


class UploadError(OSError):
    """An upload failed. The message says why, and what to do."""


def upload_checkpoint(
    folder: str | Path,
    repo_id: str,
    *,
    dry_run: bool = False,
    eval_results: str | Path | None = None,
    file: str | Path | None = None,
    **options,
) -> str | None:
    """
    Publish a checkpoint. Before that, check that it may be published and that it loads without this package, and print
    what will be sent.

    Args:
        folder: a bundle, made by `create_bundle`, which is sent as it is; or a trained checkpoint, which is bundled.
        repo_id: `user/name`. A repository that does not exist is made.
        dry_run: check everything, send nothing, use no network.
        eval_results, file: as in `create_bundle`.
        options: `license`, `language`, `datasets`, `base_model` as in `create_bundle`; the others as in `push_folder`.

    Returns:
        The address of the commit or pull request; `None` in a dry run.

    Raises:
        ValueError: if the checkpoint must not be published, does not load elsewhere, or would be public against
            `private`.
        UploadError: if the upload fails.
        OSError: if a file does not exist or is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    check_repo_id(repo_id)
    card = {key: value for key in CARD_OPTIONS if (value := options.pop(key, None))}
    with tempfile.TemporaryDirectory(prefix="lion-bundle-") as temporary:
        if is_bundle(folder):
            if given := [*card, *(["eval_results"] if eval_results else [])]:
                raise ValueError(
                    f"{folder} is a complete bundle, which goes as it is: edit its README.md, or make it again with "
                    f"`lion bundle` and these options: {', '.join(given)}."
                )
            bundle = open_bundle(folder, file=file)
        else:
            check_license(given_metadata(folder, **card))
            target = Path(temporary) / "bundle"
            bundle = create_bundle(folder, target, name=repo_id, eval_results=eval_results, file=file, **card)
        loaded = load_in_clean_process(bundle.folder)
        print(f"{'Would send' if dry_run else 'Sending'} to {repo_id}:\n")
        print_bundle(bundle)
        if repo_id not in (bundle.folder / "README.md").read_text(encoding="utf-8"):
            print(f"\nNote: README.md does not say how to load {repo_id}: is it about another repository?")
        print(
            f"\nLoaded in a process without this package (torch {loaded.versions['torch']}, transformers "
            f"{loaded.versions['transformers']}): outputs identical in {', '.join(loaded.kernels)}"
            + (f"; pipeline {loaded.pipeline!r} ran." if loaded.pipeline else ".")
        )
        return None if dry_run else push_folder(bundle.folder, repo_id, **options)


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    create_pr: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
) -> str:
    """
    Send the files of a bundle in one commit, then compare names and hashes of what arrived.

    The commit deletes weights of an earlier upload that are not part of this one, since `from_pretrained` might load
    them instead.

    Args:
        folder: the folder of the bundle.
        repo_id: `user/name`; created if it does not exist.
        private: create the repository as private; by default as the user or organization has chosen. With `True`, an
            existing repository must be private already.
        create_pr: open a pull request instead of committing.
        revision: branch to commit to, created if it does not exist; by default `main`.
        commit_message: title of the commit or pull request.

    Returns:
        The address of the commit or pull request.

    Raises:
        ValueError: if `repo_id` is not a name, or files that should be private would be public.
        UploadError: if the upload fails.
    """
    api, folder = HfApi(), Path(folder)
    check_repo_id(repo_id)
    files = {path.relative_to(folder).as_posix(): path for path in bundle_files(folder)}
    try:
        if not create_pr:
            repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if private and not api.repo_info(repo_id).private:
            raise ValueError(
                f"{repo_id} exists and everybody can see it, so --private cannot keep these files private: make the "
                "repository private in its settings, choose another name, or leave out --private."
            )
        if not create_pr and revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        parent = api.repo_info(repo_id, revision=revision).sha
        old = [x for x in api.list_repo_files(repo_id, revision=parent) if is_weights(x) and x not in files]
        # Not `upload_folder`, which makes several commits if there are many files or the first one fails.
        commit = api.create_commit(
            repo_id,
            [*(CommitOperationAdd(name, str(path)) for name, path in files.items()), *map(CommitOperationDelete, old)],
            commit_message=commit_message or "Upload a LION model",
            create_pr=create_pr,
            revision=revision,
            parent_commit=parent,
        )
        wrong = differences(api, repo_id, commit.pr_revision or commit.oid, folder)
    except (HTTPError, OSError, RuntimeError) as error:
        reasons: list[BaseException] = [error]
        while reasons[-1].__cause__ is not None:  # huggingface_hub wraps the errors of large files
            reasons.append(reasons[-1].__cause__)
        raise UploadError(
            f"The upload failed. All files go in one commit: {repo_id} holds what it held before, or all of them. Run "
            "the same command again when the reason is gone: large files that have arrived are not sent again.\n"
            f"The reason: {' '.join(' '.join(map(str, reasons)).split())}"
        ) from error
    if wrong:
        raise UploadError(
            f"What arrived in {repo_id} is not what was sent; do not use it, and run the same command again:\n"
            + "\n".join(wrong)
        )
    return commit.pr_url or commit.commit_url


def check_repo_id(repo_id: str) -> None:
    """Raise a ValueError unless it is `user/name`."""
    validate_repo_id(repo_id)
    if "/" not in repo_id:
        raise ValueError(f"{repo_id!r} is no name of a repository: give USER/NAME, or ORGANIZATION/NAME.")


def differences(api: HfApi, repo_id: str, revision: str | None, folder: Path) -> list[str]:
    """Return one line for each file of the bundle that a revision lacks or has with other content."""
    names = {path.relative_to(folder).as_posix() for path in bundle_files(folder)}
    compared = api.verify_repo_checksums(repo_id, revision=revision, local_dir=folder)
    lines = [f"{name} is missing" for name in compared.extra_paths if name in names]
    return lines + [
        f"{mismatch['path']} has another content ({mismatch['algorithm']} {mismatch['expected']})"
        for mismatch in compared.mismatches
        if mismatch["path"] in names
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="bundle, save_pretrained folder or Trainer's output")
    parser.add_argument("repo_id", metavar="USER/NAME", help="repository; created if it does not exist")
    parser.add_argument("--private", action="store_true", default=None, help="create a private repository")
    parser.add_argument("--create-pr", action="store_true", help="open a pull request instead of committing")
    parser.add_argument("--revision", help="branch to commit to (default: main)")
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything and list what would be sent, but send nothing"
    )
    parser.add_argument("--commit-message", help="title of the commit or pull request")
    add_card_arguments(parser)


def run(args: argparse.Namespace) -> None:
    print(f"Checking {args.folder}: files, kernels, loading in a process without this package.", flush=True)
    url = upload_checkpoint(**{name: value for name, value in vars(args).items() if name not in ("command", "run")})
    print(
        "\nDry run: nothing was sent." if url is None else f"\nEverything arrived (names and hashes compared): {url}"
    )
