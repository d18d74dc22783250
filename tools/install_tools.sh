#!/usr/bin/env bash
# What the deep tests use beyond Python, gcc and make: installed from Debian's packages where this is root, else named.
set -u
declare -A package=([mvn]=maven [javac]=default-jdk-headless)
missing=()
for tool in "${!package[@]}"; do
    command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get -qq update && apt-get -qq -y install "${missing[@]}" && exit 0
fi
echo "deep tests will skip what needs: ${missing[*]} (sudo apt-get install ${missing[*]})"
