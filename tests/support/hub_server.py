# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
A Hub on this machine: the part of the Hub's HTTP interface that uploading and loading models needs, in memory, for the
real client to talk to. It can be told to fail in every way that a network has.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


WRITE_TOKEN, READ_TOKEN = "test-token-that-may-write", "test-token-that-may-read"
PART_SIZE = 1 << 16  # LFS files above this arrive in parts


@dataclass
class File:
    data: bytes
    is_lfs: bool

    @property
    def oid(self) -> str:
        if self.is_lfs:
            return hashlib.sha256(self.data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    def entry(self, path: str) -> dict:
        entry = {"type": "file", "path": path, "size": len(self.data), "oid": self.oid}
        if self.is_lfs:
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.oid}\nsize {len(self.data)}\n"
            entry["oid"] = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer.encode()).hexdigest()
            entry["lfs"] = {"oid": self.oid, "size": len(self.data), "pointerSize": len(pointer)}
        return entry


@dataclass
class Repo:
    private: bool
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, ref: str, files: dict[str, File]) -> str:
        sha = hashlib.sha1(repr((len(self.commits), ref, sorted(files))).encode()).hexdigest()
        self.commits[sha], self.refs[ref] = files, sha
        return sha

    def sha(self, revision: str) -> str | None:
        return self.refs.get(revision, revision if revision in self.commits else None)


@dataclass
class Fault:
    """What goes wrong with the next `times` requests whose "METHOD /path" matches `pattern`."""

    pattern: str
    status: int | None = None  # answer this; or
    drop_after: int | None = None  # read so many bytes of the body and cut the connection; or
    lose_answer: bool = False  # do what was asked and cut the connection; or
    damage: bool = False  # store a byte less than arrived, and say nothing; or
    cut_answer: int | None = None  # send so many bytes of the answer's body and cut the connection
    times: int = 1


class Hub:
    """`with Hub() as hub:` serves at `hub.endpoint` until the end of the block."""

    def __init__(self):
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.parts: dict[tuple[str, int], bytes] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.downloads: list[tuple[str, int]] = []  # of files: path, and the byte from which on it was asked for
        self.lock = threading.RLock()

    def __enter__(self) -> "Hub":
        handler = type("BoundHandler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        repo = self.repos[repo_id]
        return {path: file.data for path, file in repo.commits[repo.sha(revision)].items()}

    def fail(self, pattern: str, **kwargs) -> None:
        self.faults.append(Fault(pattern, **kwargs))

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, request)) for request in self.requests)


class Refusal(Exception):
    """Carries the answer to a request that is refused: status, content and headers."""


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError):  # the client hung up, or was made to
            super().handle()

    def do(self):
        hub, url = self.hub, urlsplit(self.path)
        request = f"{self.command} {unquote(url.path)}"
        with hub.lock:
            hub.requests.append(request)
            fault = next((f for f in hub.faults if f.times and re.search(f.pattern, request)), None)
            if fault is not None:
                fault.times -= 1
        if fault is not None and fault.drop_after is not None:
            self.rfile.read(min(fault.drop_after, int(self.headers.get("Content-Length") or 0)))
            return self.cut()
        body = self.read_body()
        if fault is not None and fault.status is not None:
            return self.answer(fault.status, {"error": f"told to answer {fault.status}"})
        if fault is not None and fault.damage:
            body = body[:-1]
        self.query = parse_qs(url.query)
        for method, pattern, function in ROUTES:
            match = re.fullmatch(pattern, url.path)
            if match and self.command in method.split():
                with hub.lock:
                    try:
                        status, content, headers = function(self, body, *map(unquote, match.groups()))
                    except Refusal as refusal:
                        status, content, headers = refusal.args
                if fault is not None and fault.lose_answer:
                    return self.cut()
                return self.answer(status, content, headers, cut_after=fault and fault.cut_answer)
        return self.answer(404, {"error": f"no such page: {request}"})

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do

    def cut(self):
        self.close_connection = True
        self.connection.close()

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def answer(self, status: int, content=b"", headers: dict | None = None, cut_after: int | None = None):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:cut_after])
            if cut_after is not None:
                self.cut()

    def check(self, repo_id: str | None = None, write: bool = False) -> None:
        """A `Refusal` unless the token of the request allows to read (or write) the repository."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in (WRITE_TOKEN, READ_TOKEN, ""):
            raise Refusal(401, {"error": "Invalid credentials in Authorization header"}, {})
        if write and token != WRITE_TOKEN:
            raise Refusal(403 if token else 401, {"error": "You may not write here"}, {})
        if repo_id is not None and (repo_id not in self.hub.repos or self.hub.repos[repo_id].private and not token):
            raise Refusal(404 if token else 401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})

    def find(self, repo_id: str, revision: str, write: bool = False) -> tuple[Repo, str]:
        """The repository and the commit of a revision, after `check`."""
        self.check(repo_id, write)
        repo = self.hub.repos[repo_id]
        if (sha := repo.sha(revision)) is None:
            raise Refusal(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        return repo, sha

    def create_repo(self, body):
        request = json.loads(body)
        repo_id = f"{request['organization'] or 'me'}/{request['name']}"
        self.check(write=True)
        url = {"url": f"{self.hub.endpoint}/{repo_id}", "name": repo_id}
        if repo_id in self.hub.repos:
            return 409, url | {"error": "You already created this repo"}, {}
        repo = self.hub.repos[repo_id] = Repo(private=request.get("visibility") == "private")
        repo.commit("main", {})
        return 200, url, {}

    def repo_info(self, body, repo_id, revision="main"):
        repo, sha = self.find(repo_id, revision)
        siblings = [{"rfilename": path} for path in repo.commits[sha]]
        return 200, {"id": repo_id, "modelId": repo_id, "sha": sha, "private": repo.private, "siblings": siblings}, {}

    def create_branch(self, body, repo_id, branch):
        self.check(repo_id, write=True)
        repo = self.hub.repos[repo_id]
        if branch in repo.refs:
            return 409, {"error": "Reference already exists"}, {}
        repo.refs[branch] = repo.refs["main"]
        return 200, {}, {}

    def validate_yaml(self, body):
        return 200, {"errors": [], "warnings": []}, {}

    def preupload(self, body, repo_id, revision):
        repo, sha = self.find(repo_id, revision, write="create_pr" not in self.query)
        now = repo.commits[sha]
        files = []
        for file in json.loads(body)["files"]:
            mode = "lfs" if file["path"].endswith(".safetensors") else "regular"
            oid = now[file["path"]].oid if file["path"] in now else None
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return 200, {"files": files}, {}

    def lfs_batch(self, body, repo_id):
        self.check(repo_id)
        objects = []
        for item in json.loads(body)["objects"]:
            answer = dict(item)
            oid, size = item["oid"], item["size"]
            if oid not in self.hub.objects:
                href, header = f"{self.hub.endpoint}/lfs/{oid}", {}
                if size > PART_SIZE:
                    header = {"chunk_size": str(PART_SIZE)}
                    for part in range(-(-size // PART_SIZE)):
                        header[f"{part + 1:05}"] = f"{href}/{part + 1}"
                answer["actions"] = {
                    "upload": {"href": href, "header": header},
                    "verify": {"href": f"{href}/verify", "header": {}},
                }
            objects.append(answer)
        return 200, {"transfer": "basic", "objects": objects}, {}

    def lfs_put(self, body, oid):
        self.hub.objects[oid] = body
        return 200, b"", {}

    def lfs_part(self, body, oid, part):
        self.hub.parts[oid, int(part)] = body
        return 200, b"", {"ETag": hashlib.md5(body).hexdigest()}

    def lfs_complete(self, body, oid):
        parts = json.loads(body)["parts"]
        data = [self.hub.parts[oid, part["partNumber"]] for part in parts]
        if [hashlib.md5(x).hexdigest() for x in data] != [part["etag"] for part in parts]:
            return 400, {"error": "parts differ"}, {}
        self.hub.objects[oid] = b"".join(data)
        return 200, {}, {}

    def lfs_verify(self, body, oid):
        return (200 if oid in self.hub.objects else 404), {}, {}

    def commit(self, body, repo_id, revision):
        create_pr = "create_pr" in self.query
        self.check(repo_id, write=not create_pr)
        repo = self.hub.repos[repo_id]
        lines = [json.loads(line) for line in body.splitlines()]
        parent = lines[0]["value"].get("parentCommit")
        if parent is not None and parent != repo.sha(revision):
            return 412, {"error": "A commit has happened since. Please refresh and try again."}, {}
        files = dict(repo.commits[repo.sha(revision)])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = File(base64.b64decode(value["content"]), is_lfs=False)
            elif line["key"] == "lfsFile":
                files[value["path"]] = File(self.hub.objects[value["oid"]], is_lfs=True)
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        number = sum(ref.startswith("refs/pr/") for ref in repo.refs) + 1
        sha = repo.commit(f"refs/pr/{number}" if create_pr else revision, files)
        answer = {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.endpoint}/{repo_id}/commit/{sha}"}
        if create_pr:
            answer["pullRequestUrl"] = f"{self.hub.endpoint}/{repo_id}/discussions/{number}"
        return 200, answer, {}

    def tree(self, body, repo_id, revision):
        repo, sha = self.find(repo_id, revision)
        return 200, [file.entry(path) for path, file in repo.commits[sha].items()], {}

    def resolve(self, body, repo_id, revision, path):
        repo, sha = self.find(repo_id, revision)
        file = repo.commits[sha].get(path)
        if file is None:
            return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha}
        size = len(file.data)
        headers = {"X-Repo-Commit": sha, "ETag": f'"{file.oid}"', "X-Linked-Size": str(size), "Accept-Ranges": "bytes"}
        start = int(re.fullmatch("bytes=([0-9]+)-", self.headers.get("Range", "bytes=0-"))[1])
        if self.command == "GET":
            self.hub.downloads.append((path, start))
        if "Range" not in self.headers:
            return 200, file.data, headers
        if start >= size:
            return 416, b"", {"Content-Range": f"bytes */{size}"}
        return 206, file.data[start:], headers | {"Content-Range": f"bytes {start}-{size - 1}/{size}"}


REPO, REVISION = "([^/]+/[^/]+)", "([^/]+)"
ROUTES = [
    ("POST", "/api/repos/create", Handler.create_repo),
    ("POST", "/api/validate-yaml", Handler.validate_yaml),
    ("GET", f"/api/models/{REPO}", Handler.repo_info),
    ("GET", f"/api/models/{REPO}/revision/{REVISION}", Handler.repo_info),
    ("POST", f"/api/models/{REPO}/branch/{REVISION}", Handler.create_branch),
    ("POST", f"/api/models/{REPO}/preupload/{REVISION}", Handler.preupload),
    ("POST", f"/api/models/{REPO}/commit/{REVISION}", Handler.commit),
    ("GET", f"/api/models/{REPO}/tree/{REVISION}", Handler.tree),
    ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("PUT", "/lfs/([0-9a-f]+)", Handler.lfs_put),
    ("PUT", "/lfs/([0-9a-f]+)/([0-9]+)", Handler.lfs_part),
    ("POST", "/lfs/([0-9a-f]+)", Handler.lfs_complete),
    ("POST", "/lfs/([0-9a-f]+)/verify", Handler.lfs_verify),
    ("GET HEAD", f"/{REPO}/resolve/{REVISION}/(.+)", Handler.resolve),
]
