# Cells of the cursor page, as ``ipc/cursor_page.py`` has them, for kernels that read and write them.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef LMQ_CELLS
    #define LMQ_CELLS
    #include <errno.h>
    #include <stdint.h>
    #include <sys/epoll.h>
    #include <sys/file.h>
    #include <sys/socket.h>
    #include <time.h>
    #include <unistd.h>

    #define LMQ_EVENTS 64
    #define LMQ_FIELDS 8
    #define LMQ_SECOND (32 * LMQ_FIELDS)

    /* Fields that belong together stand twice; the sequence before them names the copy. */
    static inline void lmq_publish(
            int64_t *cells, int slot, const int64_t *values, int count) {
        int64_t *at = cells + slot * LMQ_FIELDS, *copy;
        int64_t sequence = *at + 1;
        int k;
        copy = at + (sequence & 1 ? LMQ_SECOND : 0);
        for (k = 0; k < count; k++)
            __atomic_store_n(copy + 1 + k, values[k], __ATOMIC_RELAXED);
        __atomic_store_n(at, sequence, __ATOMIC_RELEASE);
    }

    /* Whether what was read is of one moment. */
    static inline int lmq_snapshot(int64_t *cells, int slot, int64_t *values, int count) {
        int64_t *at = cells + slot * LMQ_FIELDS, *copy;
        int64_t sequence = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        int k;
        copy = at + (sequence & 1 ? LMQ_SECOND : 0);
        for (k = 0; k < count; k++)
            values[k] = __atomic_load_n(copy + 1 + k, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return __atomic_load_n(at, __ATOMIC_RELAXED) == sequence;
    }

    static inline int64_t lmq_cell(int64_t *cells, int at) {
        return __atomic_load_n(cells + at, __ATOMIC_ACQUIRE);
    }

    /* With a barrier behind it: who sets ``asleep`` reads the cursors after that. */
    static inline void lmq_set(int64_t *cells, int at, int64_t value) {
        __atomic_store_n(cells + at, value, __ATOMIC_SEQ_CST);
    }

    static inline void lmq_add(int64_t *cells, int at, int64_t value) {
        __atomic_store_n(cells + at, cells[at] + value, __ATOMIC_RELAXED);
    }

    static inline int64_t lmq_time(int clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    /* As ``TimeHistogram.observe`` of ``ipc/time_histogram.py``: 22 buckets, then the sum. */
    static inline void lmq_observe(int64_t *cells, int at, int64_t ns) {
        int64_t left = ns >> 16;
        int number = 0;
        while (left > 0 && number < 21) {
            left >>= 1;
            number++;
        }
        lmq_add(cells, at + number, 1);
        lmq_add(cells, at + 22, ns);
    }

    static inline int lmq_lock(int fd) {
        int result;
        while ((result = flock(fd, LOCK_EX)) != 0 && errno == EINTR);
        return result;
    }

    static inline void lmq_ring(int64_t *cells, int asleep_at, int bell) {
        if (lmq_cell(cells, asleep_at)) {
            ssize_t ignored;
            lmq_set(cells, asleep_at, 0);
            /* It does not block: a full one holds bells enough. */
            ignored = write(bell, "", 1);
            (void)ignored;
        }
    }

    static inline ssize_t lmq_take(int fd, void *data, size_t size) {
        return recv(fd, data, size, MSG_DONTWAIT);
    }

    static inline ssize_t lmq_give(int fd, const void *data, size_t size) {
        return send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    }

    static inline ssize_t lmq_pwrite(int fd, const void *data, size_t size, int64_t at) {
        return pwrite(fd, data, size, (off_t)at);
    }
    #endif
    """
    enum:
        LMQ_EVENTS, LMQ_FIELDS, LOCK_UN, EPOLLIN, CLOCK_REALTIME, CLOCK_MONOTONIC
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_wait(int, epoll_event *, int, int) nogil
    int flock(int, int)
    ssize_t lmq_take(int, void *, size_t) noexcept
    ssize_t lmq_give(int, const void *, size_t) noexcept
    ssize_t lmq_pwrite(int, const void *, size_t, int64_t) noexcept nogil
    void lmq_publish(int64_t *, int, const int64_t *, int) noexcept
    bint lmq_snapshot(int64_t *, int, int64_t *, int) noexcept
    int64_t lmq_cell(int64_t *, int) noexcept
    void lmq_set(int64_t *, int, int64_t) noexcept
    void lmq_add(int64_t *, int, int64_t) noexcept
    int64_t lmq_time(int) noexcept
    void lmq_observe(int64_t *, int, int64_t) noexcept
    int lmq_lock(int) noexcept
    void lmq_ring(int64_t *, int, int) noexcept
