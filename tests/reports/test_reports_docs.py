"""What documents say can be done can be done: their Python runs, their commands exist, their links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import nsm

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OPTIONS = (ROOT / "tests" / "cli" / "options.txt").read_text().splitlines()


def blocks(kind):
    """All fenced blocks of a kind, by the document and their place in it."""
    return [
        pytest.param(block, id=f"{document.stem}-{n}")
        for document in DOCUMENTS
        for n, block in enumerate(re.findall(rf"```{kind}\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL))
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs_as_it_stands(code, tmp_path):
    """In a process of its own: documents are read by people who start anew."""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def options_of(command, task):
    """What a command takes; of training what all tasks take, and what this one does."""
    ours = [f"{command} "]
    if command == "train":
        recipe = "sequence" if "+" in task else task if f"train {task} " in "\n".join(OPTIONS) else task.split("-")[0]
        ours = ["train TASK ", f"train {recipe} "]
    return {line.split(":")[0].split()[-1] for line in OPTIONS if line.startswith(tuple(ours))}


@pytest.mark.parametrize("text", blocks("bash"))
def test_commands_and_their_options_exist(text):
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] in ("./nsm", "nsm"):
            command, options = words[1], [word.split("=")[0] for word in words if word.startswith("--")]
            known = options_of(command, words[2] if len(words) > 2 else "")
            assert known, line
            assert set(options) <= known | {"--help"}, line


def test_options_that_do_not_exist_are_found():
    assert {"--iterations", "--task.length", "--seed"} <= options_of("train", "copy")
    assert "--classes" in options_of("train", "omniglot-10")
    assert "--classes" not in options_of("train", "copy")
    assert "--task.subtasks.0.width" in options_of("train", "copy+repeat-copy")
    assert "--size" not in options_of("train", "copy") | options_of("eval", "")
    assert "--which" in options_of("eval", "")
    assert not options_of("trian", "copy")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_and_files_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target
    for name in re.findall(r"`((?:docs|examples|tests|scripts|benchmarks)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name


def test_the_table_of_equations_names_code_that_exists():
    text = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| [^|]+ \| `([\w/]+\.py)`(?:: ([^|]*))? \|", text)
    assert len(rows) > 15
    for file, names in rows:
        source = (ROOT / "src" / "nsm" / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)?)`", names or ""):
            last = name.split(".")[-1]
            assert re.search(rf"(class|def) {last}\b|\b{last}:", source), f"{file} has no {name}"


def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", ROOT / "docs", tmp_path]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {path.stem for path in tmp_path.glob("*.html")}
    assert pages >= {path.stem for path in (ROOT / "docs").glob("*.md")}


def test_every_public_name_is_on_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in nsm.__all__ if not name.startswith("_") and not re.search(rf"\b{name}\b", text)]
    assert missing == []
