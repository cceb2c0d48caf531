"""Modules joined into the one script of a page."""

from importlib.resources import files

import pytest

from nsm.reports.viewer.bundle import bundle


@pytest.fixture
def module(tmp_path):
    """Write a module, in a folder too."""

    def written(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return tmp_path

    return written


def test_modules_come_after_those_they_import_and_once(module):
    module(
        "page.js",
        '"use strict";\nimport { a } from "./parts/a.js";\nimport {\n  b,\n} from "./parts/b.js";\nuse(a, b);\n',
    )
    module("parts/a.js", 'import { c } from "../c.js";\nexport const a = c + 1;\n')
    module("parts/b.js", 'import { c } from "../c.js";\nimport { a } from "./a.js";\nexport function b() {}\n')
    root = module("c.js", "export const c = 1;\nexport class C {}\nexport async function d() {}\n")
    assert bundle(root, "page.js") == (
        '"use strict";\n'
        "const c = 1;\nclass C {}\nasync function d() {}\n"
        "const a = c + 1;\n"
        "function b() {}\n"
        "use(a, b);\n"
    )


def test_a_name_of_two_modules_is_refused(module):
    module("page.js", 'import { f } from "./f.js";\nfunction g() {}\n')
    root = module("f.js", "export function f() {}\nlet g = 1;\n")
    with pytest.raises(ValueError, match="more than one module: g"):
        bundle(root, "page.js")


@pytest.mark.parametrize(
    "line",
    [
        'import * as f from "./f.js";',
        'import { f as g } from "./f.js";',
        'import f from "./f.js";',
        'import "./f.js";',
        'export { f } from "./f.js";',
        "export default 3;",
        "var f = 3;",
        "const { f } = window;",
    ],
)
def test_what_it_does_not_understand_is_refused(module, line):
    with pytest.raises(ValueError, match="can't have"):
        bundle(module("page.js", f"use();\n{line}\n"), "page.js")


def test_modules_that_import_each_other_are_refused(module):
    module("page.js", 'import { f } from "./f.js";\nexport const g = 1;\n')
    root = module("f.js", 'import { g } from "./page.js";\nexport const f = 1;\n')
    with pytest.raises(ValueError, match="cycle"):
        bundle(root, "page.js")


def test_all_of_the_viewer_can_be_joined():
    script = bundle(files("nsm.reports.viewer"), "viewer.js")
    assert script.startswith('"use strict";\n')
    assert script.count('"use strict"') == 1
