from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from "keymap.h" nogil:
    enum:
        KL_KEYMAP_ENTRY
        KL_KEYMAP_GROUP

    ctypedef struct kl_key_t:
        const uint8_t *at
        size_t size

    ctypedef struct kl_hash_t:
        uint64_t high
        uint64_t low

    ctypedef struct kl_keyhash_t:
        void (*many)(const kl_keyhash_t *hash, const kl_key_t *keys, int32_t n, kl_hash_t *out) noexcept nogil

    ctypedef struct kl_keymap_t:
        kl_keyhash_t hash
        int64_t slots
        int64_t slots_max
        int64_t limit
        int64_t size

    const char *kl_keyhash_init(kl_keyhash_t *hash, const uint8_t *secret, int kernel)
    size_t kl_keymap_bytes(int64_t slots_max)
    void kl_keymap_init(kl_keymap_t *map, void *memory, int64_t slots_max, int64_t limit)
    void kl_keymap_track_stale(kl_keymap_t *map, uint64_t *words, uint64_t *marked, int64_t first, int64_t count)
    int32_t kl_keymap_put(kl_keymap_t *map, const kl_key_t *keys, const int64_t *offsets, int32_t n)
    void kl_keymap_get(const kl_keymap_t *map, const kl_key_t *keys, int32_t n, int64_t *offsets)
