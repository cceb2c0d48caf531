"""The Hugging Face Hub on 127.0.0.1, as far as machines need it: repositories with commits, uploads and downloads."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class Hub(BaseHTTPRequestHandler):
    """Repositories by name: the files of each commit, the newest last. `heard` is every request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content=b"", headers=()):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def tell(self, document, status=200):
        self.answer(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def lacks(self, what):
        """How the Hub says what it does not have: the repository, the revision or the entry."""
        self.answer(404, b"", {"X-Error-Code": f"{what}NotFound", "X-Error-Message": f"{what} not found"})

    def do_HEAD(self):
        self.serve()

    def do_GET(self):
        self.serve()

    def serve(self):
        """/user/name/resolve/revision/file"""
        self.server.heard.append((self.command, self.path))
        parts = unquote(self.path.partition("?")[0]).split("/")[1:]
        commits = self.server.repositories.get("/".join(parts[:2]))
        if len(parts) != 5 or parts[2] != "resolve" or commits is None:
            return self.lacks("Repo")
        commit = list(commits)[-1] if parts[3] == "main" else parts[3]
        if commit not in commits:
            return self.lacks("Revision")
        if parts[4] not in commits[commit]:
            return self.answer(
                404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit, "X-Error-Message": "no entry"}
            )
        content = commits[commit][parts[4]]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if self.server.claimed is not None:
            headers["X-Linked-Size"] = str(self.server.claimed)
        return self.answer(200, content, headers)

    def do_POST(self):
        self.server.heard.append((self.command, self.path))
        content = self.rfile.read(int(self.headers["Content-Length"]))
        parts = unquote(self.path).split("/")[1:]
        if self.headers.get("Authorization") != "Bearer secret":
            return self.tell({"error": "Invalid username or password."}, 401)
        if parts == ["api", "repos", "create"]:
            asked = json.loads(content)
            name = f"{asked.get('organization') or 'user'}/{asked['name']}"
            self.server.repositories.setdefault(name, {})
            return self.tell({"url": f"{self.server.address}/{name}"})
        if parts == ["api", "validate-yaml"]:
            return self.tell({"errors": [], "warnings": []})
        repository = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(content)["files"]]
            return self.tell({"files": [{**file, "shouldIgnore": False, "oid": None} for file in files]})
        assert parts[4] == "commit", self.path
        commits = self.server.repositories[repository]
        files = dict(list(commits.values())[-1]) if commits else {}
        for line in content.splitlines():
            said = json.loads(line)
            if said["key"] == "file":
                files[said["value"]["path"]] = base64.b64decode(said["value"]["content"])
        commit = hashlib.sha1(content).hexdigest()
        commits[commit] = files
        address = f"{self.server.address}/{repository}/commit/{commit}"
        return self.tell({"success": True, "commitOid": commit, "commitUrl": address})


@contextmanager
def serving():
    """A Hub at `address`, whose `repositories` can be looked at and changed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    server.repositories, server.heard, server.claimed = {}, [], None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
