# Sourced: copy_of_tree NAME copies the tracked files to build/NAME-tree and goes there; sets python. A build with other
# flags needs a tree of its own: flavours never share objects.
copy_of_tree() {
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    python="${PYTHON:-$PWD/.venv/bin/python}"
    mkdir -p "build/$1-tree"
    # -m: a file older than the last build may appear by a merge; by its own time make would not rebuild.
    git ls-files -z | tar --null -T - -cf - | tar -xmf - -C "build/$1-tree"
    cd "build/$1-tree"
}
