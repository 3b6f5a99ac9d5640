# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of Merkle trees: records of a log as leaves, without an object for any of them.

Hashes are OpenSSL's, whose code takes the processor's instructions for SHA-256 where it has some:
the very library that Python's ``hashlib`` has loaded, found by its name. Where there is none, or
another one, nobody gets this module, and the plain loop does the same (``receipts/merkle_tree.py``).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

import _hashlib  # noqa: F401 - it loads the library

cdef extern from *:
    """
    #include <dlfcn.h>
    #include <stddef.h>
    #include <stdint.h>

    /* Larger than the library's own, which it says nothing of. */
    typedef struct { uint64_t words[32]; } lmq_sha;
    static struct {
        int (*init)(lmq_sha *);
        int (*update)(lmq_sha *, const void *, size_t);
        int (*final)(unsigned char *, lmq_sha *);
    } lmq_sha256;

    static int lmq_sha_load(void) {
        void *crypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_NOLOAD);
        if (crypto == NULL) return 0;
        *(void **)&lmq_sha256.init = dlsym(crypto, "SHA256_Init");
        *(void **)&lmq_sha256.update = dlsym(crypto, "SHA256_Update");
        *(void **)&lmq_sha256.final = dlsym(crypto, "SHA256_Final");
        return lmq_sha256.init && lmq_sha256.update && lmq_sha256.final;
    }

    static void lmq_hash(uint8_t mark, const uint8_t *data, size_t size, uint8_t *to) {
        lmq_sha sha;
        lmq_sha256.init(&sha);
        lmq_sha256.update(&sha, &mark, 1);
        lmq_sha256.update(&sha, data, size);
        lmq_sha256.final(to, &sha);
    }
    """
    int lmq_sha_load() noexcept
    void lmq_hash(uint8_t, const uint8_t *, size_t, uint8_t *) noexcept nogil

cdef enum:
    HASH_SIZE = 32
    LEAF = 0
    NODE = 1
    PEAKS_MAX = 64

if not lmq_sha_load():
    raise ImportError("no libcrypto of version 3 with SHA256_Init")


def add_leaves(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] sizes,
               int64_t size, bytes peaks):
    """A tree of ``size`` leaves with these ``peaks``, the largest one first, and behind it a leaf
    for each span of ``data``: the peaks that it has then, one behind the other.

    Raises:
        ValueError: a span is not within ``data``, or the peaks are those of no such tree.
    """
    cdef uint8_t stack[(PEAKS_MAX + 1) * HASH_SIZE]
    cdef Py_ssize_t count = starts.shape[0], k, depth = len(peaks) // HASH_SIZE
    cdef Py_ssize_t end = data.shape[0]
    cdef int64_t at = size
    cdef int bits = 0
    while at > 0:
        bits += at & 1
        at >>= 1
    if size < 0 or len(peaks) % HASH_SIZE or depth != bits:
        raise ValueError("peaks of no such tree")
    if sizes.shape[0] != count:
        raise ValueError("as many starts as sizes")
    for k in range(count):
        if starts[k] < 0 or sizes[k] < 0 or sizes[k] > end or starts[k] > end - sizes[k]:
            raise ValueError("span is not within the data")
    memcpy(stack, PyBytes_AS_STRING(peaks), depth * HASH_SIZE)
    with nogil:
        for k in range(count):
            lmq_hash(LEAF, &data[0] + starts[k], sizes[k], stack + depth * HASH_SIZE)
            depth += 1
            at = size
            while at & 1:
                depth -= 1
                lmq_hash(NODE, stack + (depth - 1) * HASH_SIZE, 2 * HASH_SIZE,
                         stack + (depth - 1) * HASH_SIZE)
                at >>= 1
            size += 1
    return PyBytes_FromStringAndSize(<char *>stack, depth * HASH_SIZE)
