# Sourced by ./nsm and ./check: makes .venv/ in the checkout and keeps it up to date with what is declared.
# usage: prepare [extra]     installs the project, with an extra from pyproject.toml if one is named
# PYTHON names the interpreter of a new .venv/; without it, it is the newest that is found.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

prepare() {
    local extra=${1:-} python stamp wanted
    stamp=$here/.venv/installed${extra:+-$extra}
    wanted=$(cat "$here/pyproject.toml" "$here/constraints.txt" | cksum)
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return

    for python in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi
        python=
    done
    if [ -z "$python" ]; then
        echo "nsm needs Python 3.11 or newer; none was found on the PATH" >&2
        exit 2
    fi
    [ -x "$here/.venv/bin/python" ] || "$python" -m venv "$here/.venv"
    echo "Setting up .venv (once, a minute or two) …" >&2
    "$here/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$here/constraints.txt" --editable "$here${extra:+[$extra]}" >&2
    echo "$wanted" > "$stamp"
}
