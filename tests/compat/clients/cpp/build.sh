#!/usr/bin/env bash
# Builds RocketMQ's C++ client, which the Python package rocketmq-client-python 2.0.0 needs and does not
# bring, of its source at 2.0.0 with Debian 12's compiler and libraries:
#
#   git clone --branch 2.0.0 https://github.com/apache/rocketmq-client-cpp SOURCE
#   build.sh SOURCE librocketmq.so
#   LEDGERMQ_LIBROCKETMQ=$PWD/librocketmq.so pytest tests/compat/test_remoting_clients.py
#
# The source stays as it is. Five lines of its copy are changed: what GCC 12 and Boost 1.74 take no more.
set -euo pipefail
[ $# = 2 ] || { echo "usage: build.sh SOURCE LIBRARY" >&2 && exit 1; }
source=$(realpath "$1") library=$(realpath -m "$2")

packages=(g++ libboost-{chrono,date-time,filesystem,iostreams,locale,log,serialization,system,thread}-dev
    libevent-dev libjsoncpp-dev libssl-dev zlib1g-dev)
missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        missing+=("$package")
done
if [ ${#missing[@]} != 0 ]; then
    echo "build: missing; install with: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$source"/{include,libs,src} "$folder"
cd "$folder"
sed -i 's/^# define alignof(type) .*/#define alignof(type) __alignof__(type)/' \
    libs/signature/src/sha{1,256,512}.c
sed -i 's|<boost/detail/endian.hpp>|<boost/predef/other/endian.h>|' src/common/ByteOrder.h
sed -i 's|^#include <memory>$|#include <string>\n#include <memory>|' src/transport/EventLoop.h

includes=(-Iinclude -Ilibs/signature/include -I/usr/include/jsoncpp)
while read -r each; do includes+=("-I$each"); done < <(find src -type d)
# Its C files are called by C++ names.
flags=(-x c++ -std=c++11 -O1 -fPIC -fpermissive -w -DBOOST_LITTLE_ENDIAN=1 -DBOOST_ALL_DYN_LINK
    -DBOOST_BIND_GLOBAL_PLACEHOLDERS)
compile() {
    g++ "${flags[@]}" "${includes[@]}" -c "$1" -o "objects/${1//\//_}.o"
}
mkdir objects
while read -r each; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    compile "$each" &
done < <(find src libs \( -name '*.cpp' -o -path 'libs/*' -name '*.c' \) | grep -vi 'test\|dllmain')
while [ -n "$(jobs -p)" ]; do wait -n; done

g++ -shared -o "$library" objects/*.o -levent -levent_pthreads -levent_openssl -ljsoncpp \
    -lboost_{thread,system,chrono,date_time,log,log_setup,filesystem,iostreams,serialization} \
    -lssl -lcrypto -lz -lpthread
echo "$library"
