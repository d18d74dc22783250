#!/usr/bin/env bash
# Installs the programs that the deep tests and the benchmarks need besides Python, gcc and make, from Debian's packages.
# Without root it only names them.
set -u
# Ubuntu has perf in another package.
perf=linux-perf
grep -qsx 'ID=ubuntu' /etc/os-release && perf=linux-tools-generic
declare -A package=([mvn]=maven [javac]=default-jdk-headless [valgrind]=valgrind [clang]=clang [perf]=$perf [musl-gcc]=musl-tools
    [aarch64-linux-gnu-gcc]=gcc-aarch64-linux-gnu [qemu-aarch64]=qemu-user
    [mkfs.ext4]=e2fsprogs [mkfs.xfs]=xfsprogs [losetup]=mount [strace]=strace [kcat]=kcat)
libc_arm=/usr/aarch64-linux-gnu/lib/libc.a
missing=()
for tool in "${!package[@]}"; do
    PATH=$PATH:/sbin:/usr/sbin command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
[ -e "$libc_arm" ] || missing+=(libc6-dev-arm64-cross)
# libFuzzer and clang's sanitizers are in a separate package, named by clang's version.
if ! ls /usr/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1; then
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n1)
    missing+=("libclang-rt-${version:-14}-dev")
fi
# The codecs' own libraries, the peers in bench/compression_contests.py.
declare -A library=([liblz4.so.1]=liblz4-1 [libzstd.so.1]=libzstd1 [libz.so.1]=zlib1g [libsnappy.so.1]=libsnappy1v5)
for name in "${!library[@]}"; do
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qF "$name" || missing+=("${library[$name]}")
done
# RocksDB, a peer of bench/tails.py: the name of its package has a version in it.
if ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qF librocksdb.so; then
    rocksdb=$(apt-cache pkgnames librocksdb 2>/dev/null | grep -m1 '^librocksdb[0-9][0-9.]*')
    missing+=("${rocksdb:-librocksdb7.8}")
fi
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get -qq update && apt-get -qq -y install "${missing[@]}" && exit 0
fi
echo "deep tests and benchmarks will skip what needs: ${missing[*]} (sudo apt-get install ${missing[*]})"
