# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A Hub without a network: what an upload asks of the client, and repositories as a download leaves them."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import ModelInfo, RepoFile, RepoUrl


class HubInMemory(HfApi):
    """
    The client of the Hub, whose requests are answered from memory.

    Attributes:
        commits: files by path, of each commit of each repository.
        refs: the commit of each branch.
        fails: the error that each method raises.
    """

    def __init__(self):
        super().__init__(endpoint="https://huggingface.co")
        self.commits: dict[str, list[dict[str, bytes]]] = {}
        self.refs: dict[str, dict[str, int]] = {}
        self.private: set[str] = set()
        self.fails: dict[str, Exception] = {}
        self.asked: list[str] = []

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        return self.commits[repo_id][self.number(repo_id, revision)]

    def number(self, repo_id: str, revision: str | None) -> int:
        revision = revision or "main"
        return self.refs[repo_id][revision] if revision in self.refs[repo_id] else int(revision)

    def ask(self, method: str, repo_id: str | None = None) -> None:
        self.asked.append(method)
        if method in self.fails:
            raise self.fails[method]
        if repo_id is not None and repo_id not in self.commits:
            raise refusal(404, f"Repository Not Found: {repo_id}")

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        self.ask("create_repo")
        if repo_id not in self.commits:
            self.commits[repo_id], self.refs[repo_id] = [{}], {"main": 0}
            self.private |= {repo_id} if private else set()
        return RepoUrl(f"{self.endpoint}/{repo_id}", endpoint=self.endpoint)

    def create_branch(self, repo_id, *, branch, exist_ok=False):
        self.ask("create_branch", repo_id)
        self.refs[repo_id].setdefault(branch, self.refs[repo_id]["main"])

    def repo_info(self, repo_id, *, revision=None):
        self.ask("repo_info", repo_id)
        return ModelInfo(id=repo_id, private=repo_id in self.private, sha=str(self.number(repo_id, revision)))

    def list_repo_files(self, repo_id, *, revision=None):
        self.ask("list_repo_files", repo_id)
        return list(self.files(repo_id, revision))

    def create_commit(self, repo_id, operations, *, commit_message, create_pr, revision, parent_commit):
        self.ask("create_commit", repo_id)
        if str(self.number(repo_id, revision)) != parent_commit:
            raise refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(self.files(repo_id, revision))
        for operation in operations:
            if isinstance(operation, CommitOperationAdd):
                files[operation.path_in_repo] = Path(operation.path_or_fileobj).read_bytes()
            else:
                del files[operation.path_in_repo]
        if files != self.files(repo_id, revision):
            self.commits[repo_id].append(files)
        number, url = len(self.commits[repo_id]) - 1, f"{self.endpoint}/{repo_id}"
        self.refs[repo_id]["refs/pr/1" if create_pr else revision or "main"] = number
        discussion = f"{url}/discussions/1" if create_pr else None
        return CommitInfo(
            commit_url=f"{url}/commit/{number}",
            commit_message=commit_message,
            commit_description="",
            oid=str(number),
            pr_url=discussion,
        )

    def list_repo_tree(self, repo_id, *, recursive, revision, repo_type, token):
        self.ask("list_repo_tree", repo_id)
        for path, data in self.files(repo_id, revision).items():
            git_hash = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            is_large = path.endswith(".safetensors")
            yield RepoFile(path=path, size=len(data), oid=git_hash, lfs=lfs if is_large else None)


def refusal(status: int, message: str) -> HfHubHTTPError:
    """What the client raises for an answer of the Hub."""
    return HfHubHTTPError(f"{message} ({status})", response=SimpleNamespace(headers={}, request=None))


def as_downloaded(files: dict[str, bytes], repo_id: str, cache: Path, revision: str = "main") -> None:
    """Write the files of a repository where a client without network looks for them, `HF_HUB_CACHE`."""
    folder = cache / f"models--{repo_id.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / revision).write_text("1" * 40)
    for path, data in files.items():
        file = folder / "snapshots" / ("1" * 40) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
