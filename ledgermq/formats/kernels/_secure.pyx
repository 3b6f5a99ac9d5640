# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of members' connections: TLS records and messages, one call a message.

What is said over a connection is made here into records and sent, and what has come is made into
messages, without an object or a call of Python's in between. TLS is OpenSSL's: the very library
that Python's ``ssl`` module has loaded, found by its name; where there is none, or another one, the
module's own objects do the same (``members/direct_connection.py``).

Functions of the library are called by their stable interface of version 3. Nothing here blocks.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, strerror

import _ssl  # noqa: F401 - it loads the library

cdef extern from *:
    """
    #include <dlfcn.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/types.h>

    #define LMQ_TAKEN (256 * 1024)
    #define LMQ_RECORD (16 * 1024)
    #define LMQ_KEPT (2 * 1024 * 1024)

    /* The functions that are used, of libssl and libcrypto 3. */
    typedef void lmq_any;
    static struct {
        lmq_any *(*tls_method)(void);
        lmq_any *(*ctx_new)(const lmq_any *);
        void (*ctx_free)(lmq_any *);
        long (*ctx_ctrl)(lmq_any *, int, long, void *);
        uint64_t (*ctx_set_options)(lmq_any *, uint64_t);
        int (*ctx_set_num_tickets)(lmq_any *, size_t);
        int (*ctx_use_certificate)(lmq_any *, lmq_any *);
        int (*ctx_use_key)(lmq_any *, lmq_any *);
        int (*ctx_check_key)(const lmq_any *);
        void (*ctx_set_verify)(lmq_any *, int, lmq_any *);
        lmq_any *(*ctx_store)(const lmq_any *);
        lmq_any *(*ctx_param)(lmq_any *);
        int (*ctx_set_alpn)(lmq_any *, const unsigned char *, unsigned int);
        void (*ctx_select_alpn)(lmq_any *, int (*)(lmq_any *, const unsigned char **,
            unsigned char *, const unsigned char *, unsigned int, void *), void *);
        int (*ctx_set_id)(lmq_any *, const unsigned char *, unsigned int);
        int (*store_add)(lmq_any *, lmq_any *);
        int (*param_set_flags)(lmq_any *, unsigned long);
        int (*select_proto)(unsigned char **, unsigned char *, const unsigned char *,
            unsigned int, const unsigned char *, unsigned int);
        lmq_any *(*ssl_new)(lmq_any *);
        void (*ssl_free)(lmq_any *);
        void (*set_bio)(lmq_any *, lmq_any *, lmq_any *);
        void (*set_accept)(lmq_any *);
        void (*set_connect)(lmq_any *);
        int (*handshake)(lmq_any *);
        int (*read)(lmq_any *, void *, int);
        int (*write)(lmq_any *, const void *, int);
        int (*get_error)(const lmq_any *, int);
        lmq_any *(*peer)(const lmq_any *);
        void (*alpn)(const lmq_any *, const unsigned char **, unsigned int *);
        int (*i2d)(const lmq_any *, unsigned char **);
        lmq_any *(*d2i)(lmq_any **, const unsigned char **, long);
        void (*x509_free)(lmq_any *);
        void (*key_free)(lmq_any *);
        lmq_any *(*pem_x509)(lmq_any *, lmq_any **, void *, void *);
        lmq_any *(*pem_key)(lmq_any *, lmq_any **, void *, void *);
        lmq_any *(*mem_bio)(const void *, int);
        int (*bio_free)(lmq_any *);
        lmq_any *(*bio_new)(const lmq_any *);
        lmq_any *(*meth_new)(int, const char *);
        int (*meth_index)(void);
        int (*meth_write)(lmq_any *, int (*)(lmq_any *, const char *, int));
        int (*meth_read)(lmq_any *, int (*)(lmq_any *, char *, int));
        int (*meth_ctrl)(lmq_any *, long (*)(lmq_any *, int, long, void *));
        void (*bio_set_data)(lmq_any *, void *);
        void *(*bio_data)(lmq_any *);
        void (*bio_set_init)(lmq_any *, int);
        void (*bio_set_flags)(lmq_any *, int);
        void (*bio_clear_flags)(lmq_any *, int);
        unsigned long (*err_get)(void);
        void (*err_clear)(void);
        const char *(*err_reason)(unsigned long);
        lmq_any *method;
    } lmq;

    typedef struct {
        const uint8_t *in;
        size_t in_size;
        uint8_t *out;
        size_t out_at, out_size, out_room;
    } lmq_bytes;

    static uint8_t lmq_taken[LMQ_TAKEN];
    static uint8_t lmq_record[LMQ_RECORD];

    static int lmq_bio_write(lmq_any *bio, const char *data, int size) {
        lmq_bytes *bytes = (lmq_bytes *)lmq.bio_data(bio);
        size_t end;
        lmq.bio_clear_flags(bio, 0x0f);
        if (bytes->out_at) {
            bytes->out_size -= bytes->out_at;
            memmove(bytes->out, bytes->out + bytes->out_at, bytes->out_size);
            bytes->out_at = 0;
        }
        end = bytes->out_size + (size_t)size;
        if (end > bytes->out_room) {
            size_t room = 2 * end < LMQ_RECORD ? LMQ_RECORD : 2 * end;
            uint8_t *larger = (uint8_t *)realloc(bytes->out, room);
            if (larger == NULL) return -1;
            bytes->out = larger;
            bytes->out_room = room;
        }
        memcpy(bytes->out + bytes->out_size, data, (size_t)size);
        bytes->out_size = end;
        return size;
    }

    static int lmq_bio_read(lmq_any *bio, char *data, int size) {
        lmq_bytes *bytes = (lmq_bytes *)lmq.bio_data(bio);
        size_t count = (size_t)size < bytes->in_size ? (size_t)size : bytes->in_size;
        lmq.bio_clear_flags(bio, 0x0f);
        if (count == 0) {
            /* Nothing has come, and something may. */
            lmq.bio_set_flags(bio, 0x01 | 0x08);
            return -1;
        }
        memcpy(data, bytes->in, count);
        bytes->in += count;
        bytes->in_size -= count;
        return (int)count;
    }

    static long lmq_bio_ctrl(lmq_any *bio, int command, long number, void *pointer) {
        (void)bio; (void)number; (void)pointer;
        return command == 11;  /* what is written is in memory: flushed */
    }

    static int lmq_choose(lmq_any *ssl, const unsigned char **out, unsigned char *size,
            const unsigned char *theirs, unsigned int their_size, void *own) {
        const unsigned char *list = (const unsigned char *)own;
        (void)ssl;
        if (lmq.select_proto((unsigned char **)out, size, list + 1, list[0], theirs, their_size)
                != 1)
            return 3;  /* it goes on without one, and its owner looks */
        return 0;
    }

    static void lmq_select_alpn(lmq_any *context, const unsigned char *list) {
        lmq.ctx_select_alpn(context, lmq_choose, (void *)list);
    }

    static int lmq_load(void) {
        void *ssl = dlopen("libssl.so.3", RTLD_NOW | RTLD_NOLOAD);
        void *crypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_NOLOAD);
        size_t k;
        struct { void *library; void **place; const char *name; } all[] = {
            {ssl, (void **)&lmq.tls_method, "TLS_method"},
            {ssl, (void **)&lmq.ctx_new, "SSL_CTX_new"},
            {ssl, (void **)&lmq.ctx_free, "SSL_CTX_free"},
            {ssl, (void **)&lmq.ctx_ctrl, "SSL_CTX_ctrl"},
            {ssl, (void **)&lmq.ctx_set_options, "SSL_CTX_set_options"},
            {ssl, (void **)&lmq.ctx_set_num_tickets, "SSL_CTX_set_num_tickets"},
            {ssl, (void **)&lmq.ctx_use_certificate, "SSL_CTX_use_certificate"},
            {ssl, (void **)&lmq.ctx_use_key, "SSL_CTX_use_PrivateKey"},
            {ssl, (void **)&lmq.ctx_check_key, "SSL_CTX_check_private_key"},
            {ssl, (void **)&lmq.ctx_set_verify, "SSL_CTX_set_verify"},
            {ssl, (void **)&lmq.ctx_store, "SSL_CTX_get_cert_store"},
            {ssl, (void **)&lmq.ctx_param, "SSL_CTX_get0_param"},
            {ssl, (void **)&lmq.ctx_set_alpn, "SSL_CTX_set_alpn_protos"},
            {ssl, (void **)&lmq.ctx_select_alpn, "SSL_CTX_set_alpn_select_cb"},
            {ssl, (void **)&lmq.ctx_set_id, "SSL_CTX_set_session_id_context"},
            {crypto, (void **)&lmq.store_add, "X509_STORE_add_cert"},
            {crypto, (void **)&lmq.param_set_flags, "X509_VERIFY_PARAM_set_flags"},
            {ssl, (void **)&lmq.select_proto, "SSL_select_next_proto"},
            {ssl, (void **)&lmq.ssl_new, "SSL_new"},
            {ssl, (void **)&lmq.ssl_free, "SSL_free"},
            {ssl, (void **)&lmq.set_bio, "SSL_set_bio"},
            {ssl, (void **)&lmq.set_accept, "SSL_set_accept_state"},
            {ssl, (void **)&lmq.set_connect, "SSL_set_connect_state"},
            {ssl, (void **)&lmq.handshake, "SSL_do_handshake"},
            {ssl, (void **)&lmq.read, "SSL_read"},
            {ssl, (void **)&lmq.write, "SSL_write"},
            {ssl, (void **)&lmq.get_error, "SSL_get_error"},
            {ssl, (void **)&lmq.peer, "SSL_get1_peer_certificate"},
            {ssl, (void **)&lmq.alpn, "SSL_get0_alpn_selected"},
            {crypto, (void **)&lmq.i2d, "i2d_X509"},
            {crypto, (void **)&lmq.d2i, "d2i_X509"},
            {crypto, (void **)&lmq.x509_free, "X509_free"},
            {crypto, (void **)&lmq.key_free, "EVP_PKEY_free"},
            {crypto, (void **)&lmq.pem_x509, "PEM_read_bio_X509"},
            {crypto, (void **)&lmq.pem_key, "PEM_read_bio_PrivateKey"},
            {crypto, (void **)&lmq.mem_bio, "BIO_new_mem_buf"},
            {crypto, (void **)&lmq.bio_free, "BIO_free"},
            {crypto, (void **)&lmq.bio_new, "BIO_new"},
            {crypto, (void **)&lmq.meth_new, "BIO_meth_new"},
            {crypto, (void **)&lmq.meth_index, "BIO_get_new_index"},
            {crypto, (void **)&lmq.meth_write, "BIO_meth_set_write"},
            {crypto, (void **)&lmq.meth_read, "BIO_meth_set_read"},
            {crypto, (void **)&lmq.meth_ctrl, "BIO_meth_set_ctrl"},
            {crypto, (void **)&lmq.bio_set_data, "BIO_set_data"},
            {crypto, (void **)&lmq.bio_data, "BIO_get_data"},
            {crypto, (void **)&lmq.bio_set_init, "BIO_set_init"},
            {crypto, (void **)&lmq.bio_set_flags, "BIO_set_flags"},
            {crypto, (void **)&lmq.bio_clear_flags, "BIO_clear_flags"},
            {crypto, (void **)&lmq.err_get, "ERR_get_error"},
            {crypto, (void **)&lmq.err_clear, "ERR_clear_error"},
            {crypto, (void **)&lmq.err_reason, "ERR_reason_error_string"},
        };
        if (ssl == NULL || crypto == NULL || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) return 0;
        for (k = 0; k < sizeof all / sizeof *all; k++) {
            *all[k].place = dlsym(all[k].library, all[k].name);
            if (*all[k].place == NULL) return 0;
        }
        lmq.method = lmq.meth_new(lmq.meth_index() | 0x0400, "ledgermq");
        if (lmq.method == NULL) return 0;
        lmq.meth_write(lmq.method, lmq_bio_write);
        lmq.meth_read(lmq.method, lmq_bio_read);
        lmq.meth_ctrl(lmq.method, lmq_bio_ctrl);
        return 1;
    }

    static lmq_any *lmq_bio(lmq_bytes *bytes) {
        lmq_any *bio = lmq.bio_new(lmq.method);
        if (bio != NULL) {
            lmq.bio_set_data(bio, bytes);
            lmq.bio_set_init(bio, 1);
        }
        return bio;
    }

    static const char *lmq_reason(void) {
        unsigned long code = lmq.err_get();
        const char *reason = code ? lmq.err_reason(code) : NULL;
        lmq.err_clear();
        return reason ? reason : "error of the TLS library";
    }

    static lmq_any *lmq_context(int is_server) {
        lmq_any *context = lmq.ctx_new(lmq.tls_method());
        if (context == NULL) return NULL;
        /* TLS 1.3 and nothing older; no session is kept, so none is resumed; no compression. */
        if (lmq.ctx_ctrl(context, 123, 0x0304, NULL) != 1 || !lmq.ctx_set_num_tickets(context, 0)) {
            lmq.ctx_free(context);
            return NULL;
        }
        lmq.ctx_set_options(context, 0x00020000u);
        lmq.ctx_ctrl(context, 44, 0, NULL);
        lmq.ctx_set_id(context, (const unsigned char *)"ledgermq", 8);
        /* The other side's certificate is needed on both. */
        lmq.ctx_set_verify(context, is_server ? 0x01 | 0x02 : 0x01, NULL);
        return context;
    }

    static int lmq_show(lmq_any *context, const char *pem, int size) {
        lmq_any *bio = lmq.mem_bio(pem, size), *certificate, *key;
        int is_taken = 0;
        if (bio == NULL) return 0;
        certificate = lmq.pem_x509(bio, NULL, NULL, NULL);
        lmq.bio_free(bio);
        bio = lmq.mem_bio(pem, size);
        key = bio == NULL ? NULL : lmq.pem_key(bio, NULL, NULL, NULL);
        if (bio != NULL) lmq.bio_free(bio);
        if (certificate != NULL && key != NULL)
            is_taken = lmq.ctx_use_certificate(context, certificate) == 1
                && lmq.ctx_use_key(context, key) == 1 && lmq.ctx_check_key(context) == 1;
        if (certificate != NULL) lmq.x509_free(certificate);
        if (key != NULL) lmq.key_free(key);
        return is_taken;
    }

    static int lmq_believe(lmq_any *context, const unsigned char *der, long size) {
        const unsigned char *at = der;
        lmq_any *certificate = lmq.d2i(NULL, &at, size);
        int is_taken;
        if (certificate == NULL) return 0;
        is_taken = at == der + size && lmq.store_add(lmq.ctx_store(context), certificate) == 1;
        lmq.x509_free(certificate);
        return is_taken;
    }

    static void lmq_flags(lmq_any *context, unsigned long flags) {
        lmq.param_set_flags(lmq.ctx_param(context), flags);
    }

    static ssize_t lmq_receive(int fd) { return recv(fd, lmq_taken, LMQ_TAKEN, MSG_DONTWAIT); }
    static ssize_t lmq_send(int fd, const void *data, size_t size) {
        return send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    """
    ctypedef void lmq_any
    ctypedef struct lmq_bytes:
        const uint8_t *in_ "in"
        size_t in_size
        uint8_t *out
        size_t out_at
        size_t out_size
        size_t out_room
    cdef enum:
        LMQ_RECORD, LMQ_KEPT
    uint8_t lmq_taken[1]
    uint8_t lmq_record[1]
    int lmq_load() noexcept
    lmq_any *lmq_bio(lmq_bytes *) noexcept
    const char *lmq_reason() noexcept
    lmq_any *lmq_context(int) noexcept
    int lmq_show(lmq_any *, const char *, int) noexcept
    int lmq_believe(lmq_any *, const unsigned char *, long) noexcept
    void lmq_flags(lmq_any *, unsigned long) noexcept
    void lmq_ctx_free "lmq.ctx_free" (lmq_any *) noexcept
    int lmq_set_alpn "lmq.ctx_set_alpn" (lmq_any *, const unsigned char *, unsigned int) noexcept
    void lmq_select_alpn(lmq_any *, const unsigned char *) noexcept
    lmq_any *lmq_ssl_new "lmq.ssl_new" (lmq_any *) noexcept
    void lmq_ssl_free "lmq.ssl_free" (lmq_any *) noexcept
    void lmq_set_bio "lmq.set_bio" (lmq_any *, lmq_any *, lmq_any *) noexcept
    void lmq_set_accept "lmq.set_accept" (lmq_any *) noexcept
    void lmq_set_connect "lmq.set_connect" (lmq_any *) noexcept
    int lmq_handshake "lmq.handshake" (lmq_any *) noexcept
    int lmq_read "lmq.read" (lmq_any *, void *, int) noexcept
    int lmq_write "lmq.write" (lmq_any *, const void *, int) noexcept
    int lmq_get_error "lmq.get_error" (lmq_any *, int) noexcept
    void lmq_err_clear "lmq.err_clear" () noexcept
    lmq_any *lmq_peer "lmq.peer" (lmq_any *) noexcept
    void lmq_alpn "lmq.alpn" (lmq_any *, const unsigned char **, unsigned int *) noexcept
    int lmq_i2d "lmq.i2d" (lmq_any *, unsigned char **) noexcept
    void lmq_x509_free "lmq.x509_free" (lmq_any *) noexcept
    ssize_t lmq_receive(int) noexcept
    ssize_t lmq_send(int, const void *, size_t) noexcept

from libc.stdlib cimport free

cdef int _WANT_READ = 2
cdef int _HEAD = 8

is_loaded: bool = bool(lmq_load())
"""Whether the library is there that Python has loaded, of version 3."""


cdef class SecureContext:
    """What is shown and believed in a handshake; TLS 1.3 and nothing older."""

    cdef lmq_any *context
    cdef bytes _protocols

    def __cinit__(
        self,
        bytes pem,
        believed,
        protocols,
        *,
        bint is_server,
        unsigned long verify_flags,
        Py_ssize_t protocols_max=255,
    ):
        """See ``tls_context`` of ``members/direct_connection.py``.

        Raises:
            OSError: one of the certificates is none.
        """
        cdef bytes der, wire
        if not is_loaded:
            raise OSError("no TLS library of version 3 is loaded")
        self.context = lmq_context(is_server)
        if self.context == NULL:
            raise OSError(lmq_reason().decode())
        lmq_flags(self.context, verify_flags)
        if not lmq_show(self.context, PyBytes_AS_STRING(pem), <int>len(pem)):
            raise OSError(lmq_reason().decode())
        for der in believed:
            if not lmq_believe(
                self.context, <const unsigned char *>PyBytes_AS_STRING(der), <long>len(der)
            ):
                raise OSError(lmq_reason().decode())
        wire = b"".join(bytes((len(name),)) + name.encode() for name in protocols)
        if len(wire) > protocols_max:
            raise OSError("too many protocols")
        self._protocols = bytes((len(wire),)) + wire
        if not wire:
            return
        if is_server:
            lmq_select_alpn(
                self.context, <const unsigned char *>PyBytes_AS_STRING(self._protocols)
            )
        elif lmq_set_alpn(
            self.context,
            <const unsigned char *>PyBytes_AS_STRING(self._protocols) + 1,
            <unsigned int>len(wire),
        ):
            raise OSError(lmq_reason().decode())

    def __dealloc__(self):
        if self.context != NULL:
            lmq_ctx_free(self.context)


cdef class SecureStream:
    """The bytes of one connection; what seldom happens to it is its subclass's.

    The subclass has ``end(reason)``, which closes the socket, and ``await_room(wanted)``, which
    says whether ``flush`` is to be called once the socket takes more.

    Attributes:
        descriptor: of the socket.
        is_open: the handshake is over.
        failure: why it has ended; empty while it has not.
        awaits_room: what ``await_room`` was told last.
    """

    cdef readonly int descriptor
    cdef public bint is_open
    cdef public bint awaits_room
    cdef public str failure
    cdef SecureContext _context
    cdef lmq_any *_ssl
    cdef lmq_bytes _bytes
    cdef size_t _unsent_max
    cdef unsigned long long _part_max
    cdef bytes _rest
    cdef bytes _body
    cdef Py_ssize_t _have
    cdef Py_ssize_t _first_size
    cdef bint _has_second

    def __init__(
        self,
        connected,
        SecureContext context,
        *,
        bint is_server,
        size_t unsent_max,
        unsigned long long part_max,
    ):
        """Take a socket that does not block.

        Args:
            connected: the socket, or what has its ``fileno``; it is the subclass's.
            unsent_max: with more bytes that wait to leave no message is taken.
            part_max: largest part of a message; a peer that sends more is disconnected.
        """
        cdef lmq_any *bio
        assert self._ssl == NULL, "a stream is made once"
        self.descriptor = connected.fileno()
        self.failure = ""
        self.awaits_room = not is_server
        self._context = context
        self._unsent_max = unsent_max
        self._part_max = part_max
        self._rest = b""
        self._ssl = lmq_ssl_new(context.context)
        if self._ssl == NULL:
            raise OSError(lmq_reason().decode())
        bio = lmq_bio(&self._bytes)
        if bio == NULL:
            raise OSError(lmq_reason().decode())
        lmq_set_bio(self._ssl, bio, bio)
        if is_server:
            lmq_set_accept(self._ssl)
        else:
            lmq_set_connect(self._ssl)

    def __dealloc__(self):
        if self._ssl != NULL:
            lmq_ssl_free(self._ssl)
        free(self._bytes.out)

    @property
    def certificate(self) -> bytes:
        """The other side's (DER), once it is open."""
        cdef lmq_any *shown = lmq_peer(self._ssl)
        cdef unsigned char *at
        cdef int size
        cdef bytes der
        if shown == NULL:
            return b""
        size = lmq_i2d(shown, NULL)
        der = PyBytes_FromStringAndSize(NULL, size if size > 0 else 0)
        if size > 0:
            at = <unsigned char *>PyBytes_AS_STRING(der)
            lmq_i2d(shown, &at)
        lmq_x509_free(shown)
        return der

    @property
    def protocol(self) -> str:
        """The one of ALPN that both sides know, once it is open; empty where there is none."""
        cdef const unsigned char *name = NULL
        cdef unsigned int size = 0
        lmq_alpn(self._ssl, &name, &size)
        return (<const char *>name)[:size].decode() if size else ""

    def send(self, first, second=None):
        """Send a message of one part or of two; false when none is taken now, or it has ended."""
        cdef Py_buffer one
        cdef Py_buffer two
        cdef bint is_made
        cdef bint has_second = second is not None
        if not self.is_open or self._bytes.out_size - self._bytes.out_at > self._unsent_max:
            return False
        PyObject_GetBuffer(first, &one, PyBUF_SIMPLE)
        try:
            if has_second:
                PyObject_GetBuffer(second, &two, PyBUF_SIMPLE)
            try:
                is_made = self._make(
                    <const uint8_t *>one.buf,
                    one.len,
                    <const uint8_t *>two.buf if has_second else NULL,
                    two.len if has_second else -1,
                )
            finally:
                if has_second:
                    PyBuffer_Release(&two)
        finally:
            PyBuffer_Release(&one)
        if not is_made:
            self.end(lmq_reason().decode())
            return False
        return self._leave()

    cdef bint _make(
        self, const uint8_t *first, Py_ssize_t size, const uint8_t *second, Py_ssize_t more
    ) noexcept:
        """Make records of a message; ``more`` is -1 without a second part."""
        cdef uint32_t head[2]
        cdef Py_ssize_t begin = _HEAD + size
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t whole = begin + (more if more > 0 else 0)
        head[0] = <uint32_t>size
        head[1] = <uint32_t>(more + 1)
        lmq_err_clear()
        if whole <= LMQ_RECORD:
            memcpy(lmq_record, head, _HEAD)
            memcpy(lmq_record + _HEAD, first, size)
            if more > 0:
                memcpy(lmq_record + begin, second, more)
            return lmq_write(self._ssl, lmq_record, <int>whole) == whole
        if lmq_write(self._ssl, head, _HEAD) != _HEAD:
            return False
        if lmq_write(self._ssl, first, <int>size) != size:
            return False
        return more <= 0 or lmq_write(self._ssl, second, <int>more) == more

    cdef bint _leave(self) except -1:
        """Send what is made; what the socket does not take stays. False when it has ended."""
        cdef size_t size = self._bytes.out_size - self._bytes.out_at
        cdef ssize_t sent
        if not size:
            return True
        sent = lmq_send(self.descriptor, self._bytes.out + self._bytes.out_at, size)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.end(strerror(errno).decode())
                return False
            sent = 0
        if <size_t>sent == size:
            self._bytes.out_at = self._bytes.out_size = 0
            if self._bytes.out_room > LMQ_KEPT:
                free(self._bytes.out)
                self._bytes.out = NULL
                self._bytes.out_room = 0
            if self.awaits_room:
                self.await_room(False)
            return True
        self._bytes.out_at += sent
        if not self.awaits_room:
            self.await_room(True)
        return True

    def flush(self):
        """The socket takes more: send what waits."""
        self._leave()

    def shake_hands(self):
        """Go on with the handshake; whether it is over."""
        cdef int result
        lmq_err_clear()
        result = lmq_handshake(self._ssl)
        if result == 1:
            self.is_open = True
        elif lmq_get_error(self._ssl, result) != _WANT_READ:
            reason = lmq_reason().decode()
            # The other side is told why, if it still listens.
            self._leave()
            self.end(reason)
            return False
        self._leave()
        return self.is_open

    def receive(self):
        """Take what has come; the messages that are whole by it, each a list of its parts."""
        cdef list messages = []
        cdef ssize_t size = lmq_receive(self.descriptor)
        if size <= 0:
            if size == 0:
                self.end("closed by the other side")
            elif errno != EAGAIN and errno != EINTR:
                self.end(strerror(errno).decode())
            return messages
        self._bytes.in_ = lmq_taken
        self._bytes.in_size = size
        if self.is_open or self.shake_hands():
            self._decrypt(messages)
        # Nothing of it is looked at later: the library has kept what is not a whole record.
        self._bytes.in_size = 0
        if not self.failure and self._bytes.out_size and not self.awaits_room:
            self._leave()
        return messages

    cdef int _decrypt(self, list messages) except -1:
        cdef int size
        cdef Py_ssize_t missing
        lmq_err_clear()
        while not self.failure:
            if self._body is None:
                size = lmq_read(self._ssl, lmq_record, LMQ_RECORD)
                if size <= 0:
                    break
                self._take(size, messages)
                continue
            missing = len(self._body) - self._have
            size = lmq_read(
                self._ssl,
                PyBytes_AS_STRING(self._body) + self._have,
                <int>missing,
            )
            if size <= 0:
                break
            self._have += size
            if size == missing:
                view = memoryview(self._body)
                self._body = None
                if self._has_second:
                    messages.append([view[: self._first_size], view[self._first_size :]])
                else:
                    messages.append([view])
        else:
            return 0
        size = lmq_get_error(self._ssl, size)
        if size != _WANT_READ:
            self.end("closed by the other side" if size == 6 else lmq_reason().decode())
        return 0

    cdef int _take(self, Py_ssize_t size, list messages) except -1:
        """Make messages of what stands in the record's buffer."""
        cdef const uint8_t *data = lmq_record
        cdef bytes joined = None
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t end = size
        cdef Py_ssize_t whole
        cdef uint32_t head[2]
        if self._rest:
            joined = self._rest + PyBytes_FromStringAndSize(<const char *>data, size)
            self._rest = b""
            data = <const uint8_t *>PyBytes_AS_STRING(joined)
            end = len(joined)
        while end - at >= _HEAD:
            memcpy(head, data + at, _HEAD)
            if not 0 < head[0] <= self._part_max or head[1] > self._part_max + 1:
                self.end(f"part of no size that there is: sizes=({head[0]}, {head[1]})")
                return 0
            at += _HEAD
            whole = head[0] + (head[1] - 1 if head[1] else 0)
            if whole > end - at:
                self._first_size = head[0]
                self._has_second = head[1] > 0
                self._body = PyBytes_FromStringAndSize(NULL, whole)
                memcpy(PyBytes_AS_STRING(self._body), data + at, end - at)
                self._have = end - at
                return 0
            part = memoryview(PyBytes_FromStringAndSize(<const char *>data + at, head[0]))
            if head[1]:
                messages.append(
                    [
                        part,
                        memoryview(
                            PyBytes_FromStringAndSize(
                                <const char *>data + at + head[0], head[1] - 1
                            )
                        ),
                    ]
                )
            else:
                messages.append([part])
            at += whole
        if at < end:
            self._rest = PyBytes_FromStringAndSize(<const char *>data + at, end - at)
        return 0
